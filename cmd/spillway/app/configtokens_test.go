package app

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest"
)

// hashText is the hash of a token in the form of the file.
func hashText(token string) string { return formatHash(sha256.Sum256([]byte(token))) }

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
	if got := c.ingest().Tokens; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func quota(text string) (q ingest.Quota) {
	if err := q.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return q
}

func TestTokenErrorsNameLineAndFieldButNeverTheToken(t *testing.T) {
	t.Parallel()
	const notAHash = "not a hash: write sha256: and 64 hex digits, as printed by `spillway token`, never the token itself"
	h := hashText("x")
	tests := []struct{ name, file, want string }{
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
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, nil, nil, "namespaces:\n  kart:\n    "+tt.file+"\n")
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
			if !strings.HasPrefix(got, "spillway.yaml:"+tt.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant spillway.yaml:%s", got, tt.want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("the error shows the token: %s", got)
			}
		})
	}
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

func TestConfigPrintShowsTokensInTheFormOfTheFile(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "spillway.yaml", fmt.Sprintf("admin_token: %s\nnamespaces:\n  kart:\n    tokens:\n      - {hash: %s, name: \"5\", rate: 60/min, new_partitions: 1/s}\n      - %s\n",
		hashText("a"), hashText("b"), hashText("c")))
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if code != exitOK {
		t.Fatal(stderr)
	}
	for _, want := range []string{
		"\nadmin_token: " + hashText("a") + " # " + path + ":1\n",
		"    tokens: # " + path + ":5\n",
		"      - {hash: '" + hashText("b") + `', name: "5", rate: 60/min, new_partitions: 1/s}` + "\n",
		"      - " + hashText("c") + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	if code != exitOK || !strings.Contains(again, `name: "5", rate: 60/min`) {
		t.Errorf("the printed file is not accepted: %s%s", stderr, again)
	}
}

func TestTokenPrintsANewTokenAndItsHash(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		out, _, code := runCommand(t, nil, "", "token", "-o", "json")
		var made struct{ Token, Hash string }
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != exitOK {
			t.Fatal(out, err)
		}
		if len(made.Token) != len("sw_")+43 || seen[made.Token] || hashText(made.Token) != made.Hash {
			t.Errorf("got %+v", made)
		}
		seen[made.Token] = true
	}
	out, _, _ := runCommand(t, nil, "", "token")
	var token, hash string
	if _, err := fmt.Sscanf(out, "token  %s\nhash   %s\n", &token, &hash); err != nil || hashText(token) != hash {
		t.Errorf("got %q, %v", out, err)
	}
	if c, err := loadConfig(t, []string{"--admin-token=" + hash}, nil, "namespaces: {kart: {tokens: [\""+hash+"\"]}}\n"); err != nil || c.AdminToken != hash {
		t.Errorf("the configuration does not accept the hash: %v", err)
	}
}
