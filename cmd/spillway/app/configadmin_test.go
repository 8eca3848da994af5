package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdminTokenErrorsNameLineAndFieldButNeverTheToken(t *testing.T) {
	t.Parallel()
	h, g := hashText("x"), hashText("y")
	for _, tt := range []struct{ name, file, want string }{
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
	} {
		c, err := loadConfig(t, nil, nil, tt.file+"\n")
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
		if !strings.HasPrefix(got, "spillway.yaml:"+tt.want) || strings.Contains(got, "\n") || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got  %s\nwant spillway.yaml:%s", tt.name, got, tt.want)
		}
	}
}

func TestAdminTokensAllowListeningOnOtherAddresses(t *testing.T) {
	t.Parallel()
	for file, allowed := range map[string]bool{"": false, fmt.Sprintf("admin_tokens: [{name: a, role: viewer, hash: %q}]\n", hashText("x")): true} {
		if _, err := loadConfig(t, []string{"--admin-listen=0.0.0.0:8081"}, nil, file); (err == nil) != allowed {
			t.Errorf("with %q: %v", file, err)
		}
	}
}

func TestARoleDecidesWhatATokenMayDo(t *testing.T) {
	t.Parallel()
	a := startApp(t, "--admin-token="+hashText("root"), "--sink=null:", "--config="+writeFile(t, "spillway.yaml", fmt.Sprintf(
		"admin_tokens: [{name: vi, role: viewer, hash: %q}, {name: op, role: operator, hash: %q}]\n", hashText("v"), hashText("o"))))
	for _, tt := range []struct {
		path, token string
		want        int
	}{
		{"/metrics", "v", 200}, {"/api/v1/namespaces", "v", 200}, {"/debug/pprof/symbol", "v", 403}, {"/debug/pprof/symbol", "o", 403},
		{"/debug/pprof/symbol", "root", 200}, {"/metrics", "x", 401}, {"/metrics", "", 401}, {"/livez", "", 200},
	} {
		r, _ := http.NewRequest("GET", "http://"+a.AdminListen+tt.path, nil)
		r.Header.Set("Authorization", "Bearer "+tt.token)
		res, err := a.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.want {
			t.Errorf("%s with %q: got %d, want %d", tt.path, tt.token, res.StatusCode, tt.want)
		}
	}
}
