package config

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/control"
)

func TestAdminTokenErrorsNameLineAndFieldButNeverTheToken(t *testing.T) {
	t.Parallel()
	h, g := hashText("x"), hashText("y")
	findMistakes(t, "", []mistake{
		{"no list", "admin_tokens: x", "1: admin_tokens: not a list, or empty: write [{name: alice, role: operator, hash: \"sha256:…\"}], the hash as printed by `spillway token`"},
		{"an empty list", "admin_tokens: []", "1: admin_tokens: not a list, or empty"},
		{"a hash alone", "admin_tokens: [\"" + h + "\"]", "1: admin_tokens[0]: not a map"},
		{"no role", "admin_tokens: [{name: a, hash: \"" + h + "\"}]", "1: admin_tokens[0]: incomplete: write name, role and hash"},
		{"another role", "admin_tokens: [{name: a, role: root, hash: \"" + h + "\"}]", `1: admin_tokens[0].role: "root" is not a role: write viewer, operator or admin`},
		{"no role's name", "admin_tokens: [{name: a, role: \"\", hash: \"" + h + "\"}]", `1: admin_tokens[0].role: "" is not a role`},
		{"the token itself", "admin_tokens: [{name: a, role: admin, hash: hunter2}]", "1: admin_tokens[0].hash: not a hash"},
		{"bad name", "admin_tokens: [{name: \"a b\", role: admin, hash: \"" + h + "\"}]", "1: admin_tokens[0].name: not a name"},
		{"unknown key", "admin_tokens: [{user: a}]", "1: admin_tokens[0].user: unknown key: want one of name, role, hash"},
		{"name twice", "admin_tokens:\n- {name: a, role: admin, hash: \"" + h + "\"}\n- {name: a, role: viewer, hash: \"" + g + "\"}", "3: admin_tokens[1]: duplicate hash or name, first on line 2"},
		{"hash twice", "admin_tokens:\n- {name: a, role: admin, hash: \"" + h + "\"}\n- {name: b, role: viewer, hash: \"" + h + "\"}", "3: admin_tokens[1]: duplicate hash or name, first on line 2"},
		{"hash of admin_token", "admin_token: \"" + h + "\"\nadmin_tokens: [{name: b, role: viewer, hash: \"" + h + "\"}]", "2: admin_tokens: the token of b is that of admin_token, too: remove one"},
		{"masks that are no texts", "mask_fields: [5]", "1: mask_fields: not text: write it in quotes"},
		{"masks in a text", "mask_fields: password", "1: mask_fields: not a list"},
	})
}

func TestAdminTokensAllowListeningOnOtherAddresses(t *testing.T) {
	t.Parallel()
	for file, allowed := range map[string]bool{"": false, fmt.Sprintf("admin_tokens: [{name: a, role: viewer, hash: %q}]\n", hashText("x")): true} {
		if _, err := loadConfig(t, []string{"--admin-listen=0.0.0.0:8081"}, nil, file); (err == nil) != allowed {
			t.Errorf("with %q: %v", file, err)
		}
	}
}

func TestTokenErrorsNameLineAndFieldButNeverTheToken(t *testing.T) {
	t.Parallel()
	const notAHash = "not a hash: write sha256: and 64 hex digits, as printed by `spillway token`, never the token itself"
	h := hashText("x")
	tests := []mistake{
		{"the token itself", "tokens: [hunter2]", "3: namespaces.kart.tokens[0]: " + notAHash},
		{"the token in a map", "tokens:\n      - hash: hunter2", "4: namespaces.kart.tokens[0].hash: " + notAHash},
		{"a short hash", "tokens: [\"sha256:hunter2\"]", "3: namespaces.kart.tokens[0]: " + notAHash},
		{"not hex", "tokens: [\"sha256:" + strings.Repeat("g", 64) + "\"]", "3: namespaces.kart.tokens[0]: " + notAHash},
		{"another hash", "tokens: [\"md5:" + strings.Repeat("0", 64) + "\"]", "3: namespaces.kart.tokens[0]: " + notAHash},
		{"no value", "tokens:", "3: namespaces.kart.tokens: not a list: write [\"sha256:…\"], as printed by `spillway token`"},
		{"no list", "tokens: " + h, "3: namespaces.kart.tokens: not a list: write [\"sha256:…\"], as printed by `spillway token`"},
		{"an empty list", "tokens: []", "3: namespaces.kart.tokens: empty list: add a token, or remove the key to need no authentication"},
		{"a list in it", "tokens: [[" + h + "]]", "3: namespaces.kart.tokens[0]: " + notAHash},
		{"unknown key", "tokens:\n      - hash: " + h + "\n        rates: 5/s", "5: namespaces.kart.tokens[0].rates: unknown key: did you mean rate?"},
		{"no hash", "tokens:\n      - name: eu", "4: namespaces.kart.tokens[0]: no hash: write one, as printed by `spillway token`"},
		{"bad name", "tokens:\n      - {hash: " + h + ", name: \"a b\"}", "4: namespaces.kart.tokens[0].name: not a name: write 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"},
		{"rate without a unit", "tokens:\n      - {hash: " + h + ", rate: 500}", `4: namespaces.kart.tokens[0].rate: "500" is not a quota: write one such as 5000/s, 100/min or 20/h`},
		{"no new partitions", "tokens:\n      - {hash: " + h + ", new_partitions: 0/s}", `4: namespaces.kart.tokens[0].new_partitions: "0/s" is not a quota: write one such as 5000/s, 100/min or 20/h`},
		{"hash twice", "tokens:\n      - " + h + "\n      - " + h, "5: namespaces.kart.tokens[1]: duplicate hash or name, first on line 4: change or remove one"},
		{"name twice", "tokens:\n      - {hash: " + h + ", name: a}\n      - {hash: " + hashText("y") + ", name: a}", "5: namespaces.kart.tokens[1]: duplicate hash or name, first on line 4: change or remove one"},
		{"at the top", "sink: \"null:\"\ntokens: [" + h + "]", "4: tokens: unknown key: each namespace has its own: "},
	}
	findMistakes(t, "namespaces:\n  kart:\n    ", tests)
	for _, wrong := range []string{"hunter2", "sha256:hunter2", "sha256:"} {
		_, err := loadConfig(t, []string{"--admin-token=" + wrong}, nil, "")
		if err == nil || err.Error() != "--admin-token: admin_token: "+notAHash {
			t.Errorf("admin token %q: got %v", wrong, err)
		}
	}
}

func TestTokensAllowListeningOnOtherAddresses(t *testing.T) {
	t.Parallel()
	h := hashText("x")
	tests := []struct {
		name, file string
		args       []string
		want       string // in the error; empty: accepted
	}{
		{"tokens for every namespace", "namespaces: {default: {tokens: [" + h + "]}, kart: {tokens: [" + h + "]}}\n", nil, ""},
		{"a namespace without tokens", "namespaces: {default: {tokens: [" + h + "]}, kart: {}}\n", nil, "tokens for every namespace (missing for kart)"},
		{"no tokens at all", "", nil, "tokens for every namespace (missing for default)"},
		{"an admin token only", "", []string{"--admin-token=" + h}, "tokens for every namespace (missing for default)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadConfig(t, append([]string{"--listen=0.0.0.0:8080"}, tt.args...), nil, tt.file)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := loadConfig(t, []string{"--admin-listen=0.0.0.0:8081", "--admin-token=" + h}, nil, ""); err != nil {
		t.Errorf("admin port with an admin token: %v", err)
	}
	_, err := loadConfig(t, []string{"--admin-listen=0.0.0.0:8081"}, nil, "namespaces: {default: {tokens: ["+h+"]}}\n")
	if err == nil || !strings.Contains(err.Error(), "an admin_token") {
		t.Errorf("admin port without an admin token: %v", err)
	}
}

func TestTokensAreHashesOrMapsWithLimits(t *testing.T) {
	t.Parallel()
	file := fmt.Sprintf(`
namespaces:
  default: {tokens: ["%s"]}
  kart:
    tokens:
      - %s
      - {hash: "%s", name: kart-eu, rate: 5000/s, new_partitions: 100/min}
      - {hash: "%s"}
  chess:
`, hashText("a"), hashText("b"), strings.ReplaceAll(strings.ToUpper(hashText("c")), "SHA256", "sha256"), hashText("d"))
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]ingest.Token{
		"default": {{Hash: sha256.Sum256([]byte("a")), Name: "ca978112"}},
		"kart": {
			{Hash: sha256.Sum256([]byte("b")), Name: "3e23e816"},
			{Hash: sha256.Sum256([]byte("c")), Name: "kart-eu", Rate: quota("5000/s"), NewPartitions: quota("100/min")},
			{Hash: sha256.Sum256([]byte("d")), Name: "18ac3e73"},
		},
		"chess": nil, // not inherited
	}
	if got := c.Ingest().Tokens; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// hashText is the hash of a token in the form of the file.
func hashText(token string) string { return control.FormatHash(sha256.Sum256([]byte(token))) }

func quota(text string) (q ingest.Quota) {
	if err := q.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return q
}
