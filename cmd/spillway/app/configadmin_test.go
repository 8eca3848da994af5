package app

import (
	"fmt"
	"net/http"
	"testing"
)

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
