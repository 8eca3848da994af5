package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeFile writes text into a file in a temporary folder and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAdminPortRequiresItsToken(t *testing.T) {
	t.Parallel()
	a := newTestApp(t, "--admin-token="+hashText("secret"))
	t.Cleanup(func() { a.stop(t) })
	ask := func(path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://127.0.0.1:8081"+path, nil)
		for _, h := range headers {
			r.Header.Add("Authorization", h)
		}
		w := httptest.NewRecorder()
		a.admin.ServeHTTP(w, r)
		return w
	}
	basic := func(user, password string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/default", "/metrics", "/debug/pprof/", "/nowhere"} {
		want := 200
		if path == "/nowhere" {
			want = 404
		}
		for _, header := range []string{"Bearer secret", "bearer  secret ", basic("", "secret"), basic("anybody", "secret")} {
			if w := ask(path, header); w.Code != want {
				t.Errorf("%s with %q: got %d %s", path, header, w.Code, w.Body)
			}
		}
		for _, headers := range [][]string{
			nil, {""}, {"Bearer"}, {"Bearer "}, {"Bearer Secret"}, {"Bearer secret1"}, {"secret"}, {"Digest secret"},
			{"Bearer " + hashText("secret")}, {basic("secret", "")}, {basic("secret", "x")}, {"Basic secret"}, {"Bearer secret", "Bearer secret"},
		} {
			w := ask(path, headers...)
			if w.Code != 401 || !strings.Contains(w.Body.String(), `"error":"unauthorized"`) {
				t.Errorf("%s with %q: got %d %s", path, headers, w.Code, w.Body)
			}
			if got := strings.Join(w.Header().Values("WWW-Authenticate"), ", "); got != `Bearer, Basic realm="spillway", charset="UTF-8"` {
				t.Errorf("%s: got WWW-Authenticate %q", path, got)
			}
			if w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("%s: a rejection lacks the headers of every answer", path)
			}
		}
		if w := ask(path + "?token=secret"); w.Code != 401 {
			t.Errorf("%s takes a token in the URL: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if w := ask(path); w.Code == 401 {
			t.Errorf("%s asks a probe for a token", path)
		}
	}
	if body := ask("/metrics", "Bearer secret").Body.String(); !strings.Contains(body, "spillway_admin_unauthorized_total 70\n") {
		t.Error("401 answers are not counted as spillway_admin_unauthorized_total")
	}
}

// startAppWithTokens runs an App whose default namespace and admin port require a
// token.
func startAppWithTokens(t *testing.T) *testApp {
	return startApp(t, "--admin-token="+hashText("admin secret"), "--sink=null:", "--config="+writeFile(t, "spillway.yaml",
		"namespaces: {default: {tokens: [\""+hashText("data secret")+"\"]}, open: {}}\n"))
}

func TestReportSendsItsToken(t *testing.T) {
	t.Parallel()
	a := startAppWithTokens(t)
	const line = `{"partition":"p","data":1}` + "\n"
	server := "--server=http://" + a.Listen
	for _, tt := range []struct {
		env  map[string]string
		args []string
		code int
		want string
	}{
		{nil, []string{"--token=data secret"}, exitOK, "1 accepted"},
		{map[string]string{"SPILLWAY_TOKEN": "data secret"}, nil, exitOK, "1 accepted"},
		{nil, nil, exitFailure, "401 unauthorized"},
		{nil, []string{"--token=admin secret"}, exitFailure, "401 unauthorized"},
		{nil, []string{"--token=data secret", "--namespace=nobody"}, exitFailure, "403 forbidden"},
		{nil, []string{"--namespace=open"}, exitOK, "1 accepted"},
	} {
		out, stderr, code := runCommand(t, tt.env, line, append([]string{"report", server}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+stderr, tt.want) {
			t.Errorf("%v: exit %d, %s%s", tt.args, code, out, stderr)
		}
		if strings.Contains(out+stderr, "secret") {
			t.Errorf("%v: the output shows the token: %s%s", tt.args, out, stderr)
		}
	}
}

func TestBenchSendsItsTokens(t *testing.T) {
	t.Parallel()
	a := startAppWithTokens(t)
	bench := func(token, admin string) (string, int) {
		out, stderr, code := runCommand(t, map[string]string{"SPILLWAY_TOKEN": token}, "", "bench", "ingest", "--rate=50", "--duration=100ms",
			"--server=http://"+a.Listen, "--admin=http://"+admin+a.AdminListen, "--assert=errors=0,acked=5")
		return out + stderr, code
	}
	if out, code := bench("data secret", "any:admin%20secret@"); code != exitOK {
		t.Errorf("exit %d, %s", code, out)
	}
	if out, code := bench("", "any:admin%20secret@"); code != exitFailure || !strings.Contains(out, "errors=0: got 5") {
		t.Errorf("without a token: exit %d, %s", code, out)
	}
	if out, code := bench("data secret", "any:wrong@"); code != exitFailure || !strings.Contains(out, "401") || strings.Contains(out, "wrong") {
		t.Errorf("with a wrong admin token: exit %d, %s", code, out)
	}
}

func TestTokensAreNotInLogsMetricsOrAnswers(t *testing.T) {
	t.Parallel()
	a := startAppWithTokens(t)
	seen := ""
	for _, token := range []string{"data secret", "data secret that is wrong"} {
		for _, path := range []string{"/v1/default/p", "/v1/open/p", "/v1/nobody/p", "/v1/default/-", "/v1/default/p?token=data%20secret"} {
			r, _ := http.NewRequest("POST", "http://"+a.Listen+path, strings.NewReader("x"))
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := a.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			seen += fmt.Sprint(res.Header)
			_ = res.Body.Close()
		}
	}
	for _, path := range []string{"/metrics", "/api/v1/namespaces", "/debug/pprof/goroutine?debug=2"} {
		r := httptest.NewRequest("GET", "http://"+a.AdminListen+path, nil)
		r.Header.Set("Authorization", "Bearer admin secret")
		w := httptest.NewRecorder()
		a.admin.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Fatalf("%s: %d", path, w.Code)
		}
		seen += w.Body.String()
	}
	for _, line := range a.logs.All() {
		seen += fmt.Sprint(line.Message, line.ContextMap())
	}
	if strings.Contains(seen, "secret") {
		t.Error("a token is in the logs, metrics or answers")
	}
}
