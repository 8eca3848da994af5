package app

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/partition/control"
)

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

// hashText is the hash of a token in the form of the file.
func hashText(token string) string { return control.FormatHash(sha256.Sum256([]byte(token))) }
