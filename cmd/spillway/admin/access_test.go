package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/mask"
)

// FuzzAdminHost checks that a listener on loopback rejects every Host header with
// the name of another host.
func FuzzAdminHost(f *testing.F) {
	for _, form := range []string{"%s", "%s:8081", "[%s]", "127.0.0.1.%s", "127.0.0.1:%s", "%s%%127.0.0.1", "[127.0.0.1]%s", "127.0.0.1%s", "::1%%%s", "%s[::1]", "%s\t127.0.0.1", "%s@127.0.0.1"} {
		f.Add(form, "/metrics")
	}
	f.Add("%s.localhost", "/livez")
	f.Fuzz(func(t *testing.T, form, path string) {
		host := strings.ReplaceAll(form, "%s", "evil.example")
		if !strings.Contains(host, "evil.example") {
			return
		}
		// The part after a colon is a port, and the part after a percent sign is
		// the zone of an IP address: neither is resolved.
		name, _, _ := strings.Cut(host, ":")
		if strings.Contains(name, "evil.example") && hostAllowed(host, path, "127.0.0.1") {
			t.Fatalf("%q is accepted", host)
		}
	})
}

// closedStore answers everything with an error, so that whatever a route lets through shows.
type closedStore struct{ fakeStore }

var errReached = fmt.Errorf("%w: the store was reached", partition.ErrUnavailable)

func (closedStore) Partitions(context.Context, *partition.Namespace, partition.Page, int) ([]partition.Stats, partition.Page, error) {
	return nil, partition.Page{}, errReached
}
func (closedStore) Describe(context.Context, *partition.Namespace, []string) ([]partition.Stats, error) {
	return nil, errReached
}
func (closedStore) Peek(context.Context, *partition.Namespace, string, partition.PeekRequest) (partition.Peeked, error) {
	return partition.Peeked{}, errReached
}
func (closedStore) Pause(context.Context, *partition.Namespace, string, partition.Pause) error {
	return errReached
}
func (closedStore) Resume(context.Context, *partition.Namespace, string) (bool, error) {
	return false, errReached
}
func (closedStore) Pauses(context.Context, *partition.Namespace) ([]partition.PausedPart, error) {
	return nil, errReached
}
func (closedStore) Purge(context.Context, *partition.Namespace, partition.PurgeRequest) (partition.PurgeResult, error) {
	return partition.PurgeResult{}, errReached
}
func (closedStore) DeadLetters(context.Context, *partition.Namespace, string, int) (partition.DeadPage, error) {
	return partition.DeadPage{}, errReached
}
func (closedStore) DeadLetter(context.Context, *partition.Namespace, string) (partition.Letter, error) {
	return partition.Letter{}, errReached
}

func tokensOfEachRole() (tokens []Token) {
	for role := Viewer; role <= Admin; role++ {
		tokens = append(tokens, Token{role.String() + "-1", role, sha256.Sum256([]byte(role.String()))})
	}
	return tokens
}

// setupRoles makes a server on a closed store, with a token of each role that is its name.
func setupRoles(change func(*View)) *Server {
	store := &closedStore{fakeStore{
		overview: func() (partition.Overview, error) { return partition.Overview{}, errReached },
		audit:    func() (int64, error) { return 0, errReached },
	}}
	v := View{Store: store, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), MaskFields: mask.DefaultFields()}
	if change != nil {
		change(&v)
	}
	return New(Config{
		Listen: "127.0.0.1:8081", Source: func() View { return v },
		Reload: func(context.Context) ([]string, error) { return nil, errors.New("line 1: no\nline 2: neither") },
	}, zap.NewNop())
}

// send sends a request with a token, and a body where it writes.
func send(s *Server, method, path, token, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8081"+path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if method == http.MethodPost || method == http.MethodPut {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// pathOf fills in the placeholders of a route.
func pathOf(rt route) string {
	path := strings.NewReplacer("{namespace}", "default", "{partition}", "p", "{letter}", "0123456789abcdef", "{queue}", "q", "{job}", "x", "{$}", "").Replace(rt.path())
	switch path {
	case "/debug/pprof/profile", "/debug/pprof/trace":
		path += "?seconds=x" // rejected after the role is checked
	case "/console/":
		path += "main.js"
	}
	return path
}

// Every route with every role, without a token and with wrong ones.
func TestEveryRouteAsksForItsRole(t *testing.T) {
	t.Parallel()
	s := setupRoles(nil)
	for _, rt := range s.routes() {
		path := pathOf(rt)
		for _, token := range []string{"", "wrong", "viewe", "viewer-1", "ADMIN"} {
			if w := send(s, rt.method(), path, token, "{}"); (w.Code == 401) != (rt.role != probe) {
				t.Errorf("%s %s with token %q: got %d", rt.method(), path, token, w.Code)
			}
		}
		for role := Viewer; role <= Admin; role++ {
			if rt.path() == "/api/v1/namespaces/{namespace}/tail" && role >= rt.role {
				continue // it streams; tail_test.go
			}
			w := send(s, rt.method(), path, role.String(), "{}")
			denied := w.Code == 403 && strings.Contains(w.Body.String(), `"error":"forbidden"`)
			if denied != (role < rt.role) || w.Code == 401 {
				t.Errorf("%s %s as %s: got %d %s", rt.method(), path, role, w.Code, w.Body)
			}
			if denied && !strings.Contains(w.Body.String(), "needs the role "+rt.role.String()+"; the token of "+role.String()+"-1 has "+role.String()) {
				t.Errorf("%s %s as %s: %s", rt.method(), path, role, w.Body)
			}
			for key, value := range headers {
				if got := w.Header().Get(key); got != value && key != "Content-Security-Policy" && key != "Cache-Control" || got == "" {
					t.Errorf("%s %s: %s is %q", rt.method(), path, key, got)
				}
			}
		}
	}
}

// A reload that changes tokens is obeyed by the next request.
func TestTokensAreThoseOfTheRunningConfiguration(t *testing.T) {
	t.Parallel()
	tokens := tokensOfEachRole()
	s := New(Config{Listen: "127.0.0.1:0", Source: func() View {
		return View{Store: &fakeStore{}, Health: &fakeHealth{}, Tokens: tokens}
	}}, zap.NewNop())
	if w := send(s, "GET", "/api/v1/info", "viewer", ""); w.Code != 200 {
		t.Fatalf("got %d", w.Code)
	}
	tokens = tokens[1:]
	if w := send(s, "GET", "/api/v1/info", "viewer", ""); w.Code != 401 {
		t.Errorf("a token that was taken away: got %d", w.Code)
	}
}

func TestWritesAreJSONOfThisOriginAndShort(t *testing.T) {
	t.Parallel()
	s := setupRoles(nil)
	const pause = "/api/v1/namespaces/default/pause"
	big := `{"reason":"` + strings.Repeat("x", maxBody) + `"}`
	for _, tt := range []struct {
		name, path, body string
		headers          []string
		status           int
		want             string
	}{
		{"another origin", pause, "{}", []string{"Origin", "http://evil.example"}, 403, "cross_origin"},
		{"another site", pause, "{}", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
		{"a form", pause, "reason=x", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_type"},
		{"text", pause, "{}", []string{"Content-Type", "text/plain"}, 415, "unsupported_type"},
		{"JSON by another name", pause, "{}", []string{"Content-Type", "application/jsonp"}, 415, "unsupported_type"},
		{"no type", pause, "{}", []string{"Content-Type", ""}, 415, "unsupported_type"},
		{"JSON with a charset", pause, "{}", []string{"Content-Type", "Application/JSON; charset=utf-8"}, 503, "store_unavailable"},
		{"too long", pause, big, nil, 413, "body_too_large"},
		{"an unknown key", pause, `{"resaon":"x"}`, nil, 400, `\"resaon\": the parameters of this route are`},
		{"no object", pause, `[]`, nil, 400, "bad_request"},
		{"nothing", pause, ``, nil, 400, "send {}"},
		{"two values", pause, `{}{}`, nil, 400, "more than one"},
		{"no JSON", pause, `{reason:1}`, nil, 400, "bad_request"},
		{"a long reason", pause, `{"reason":"` + strings.Repeat("x", 513) + `"}`, nil, 400, "512 bytes"},
		{"a partition without a name", pause, `{"part":"<script>"}`, nil, 404, "no_such_partition"},
		{"no namespace", "/api/v1/namespaces/other/pause", `{}`, nil, 404, "no_such_namespace"},
		{"resume that says something", "/api/v1/namespaces/default/resume", `{"reason":"p"}`, nil, 400, "the parameters of this route are"},
		{"a purge of everything, unconfirmed", "/api/v1/namespaces/default/purge", `{}`, nil, 400, "dry_run"},
		{"a purge of nothing", "/api/v1/namespaces/default/purge", `{"confirm":0}`, nil, 400, "from 1 to"},
		{"a misspelt limit", "/api/v1/namespaces/default/purge", `{"confirm":5,"older_then":"5m"}`, nil, 400, "the parameters of this route are"},
		{"a negative age", "/api/v1/namespaces/default/purge", `{"confirm":5,"older_than":"-5s"}`, nil, 400, "from 1ms to 8760h"},
		{"an age beyond time", "/api/v1/namespaces/default/purge", `{"confirm":5,"older_than":"8761h"}`, nil, 400, "from 1ms to 8760h"},
		{"a purge that the store rejects", "/api/v1/namespaces/default/purge", `{"confirm":5}`, nil, 503, "store_unavailable"},
		{"a reload that fails", "/api/v1/reload", `{}`, nil, 400, `line 1: no\nline 2: neither`},
	} {
		w := send(s, "POST", tt.path, "admin", tt.body, tt.headers...)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}
	if w := send(s, "GET", pause, "admin", ""); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET of a write: got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// What did not pass the checks is no act. What the store rejected is one.
func TestTheTrailHasEveryActAndItsResult(t *testing.T) {
	t.Parallel()
	s := setupRoles(nil)
	send(s, "POST", "/api/v1/namespaces/default/pause", "viewer", "{}")
	send(s, "POST", "/api/v1/namespaces/default/pause", "operator", `{"reason":"a \u202e<b>"}`)
	send(s, "POST", "/api/v1/namespaces/default/purge", "admin", `{"dry_run":true}`)
	send(s, "POST", "/api/v1/namespaces/default/purge", "admin", `{"confirm":7,"partition":"p"}`)
	w := send(s, "GET", "/api/v1/audit", "viewer", "")
	body := w.Body.String()
	for _, want := range []string{
		`"name":"admin-1","role":"admin","action":"purge","namespace":"default","partition":"p","detail":"older than 0s, confirmed 7`,
		`"name":"operator-1","role":"operator","action":"pause","namespace":"default","detail":"a ` + "\u202e" + `\u003cb\u003e","result":"store unavailable: the store was reached"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the trail lacks %s:\n%s", want, body)
		}
	}
	if n := strings.Count(body, `"at_ms"`); n != 2 || strings.Index(body, "purge") > strings.Index(body, "pause") {
		t.Errorf("%d acts, want 2, the newest first: %s", n, body)
	}
	for range maxActs + 10 {
		s.record(&request{}, Act{Action: "pause"}, nil)
	}
	if n := strings.Count(send(s, "GET", "/api/v1/audit?limit=1000", "viewer", "").Body.String(), `"at_ms"`); n != maxActs {
		t.Errorf("%d acts are kept", n)
	}
}

func TestOnePurgeRunsAtATime(t *testing.T) {
	t.Parallel()
	s := setupRoles(nil)
	s.acts.Lock()
	w := send(s, "POST", "/api/v1/namespaces/default/purge", "admin", `{"confirm":7}`)
	s.acts.Unlock()
	if w.Code != 409 || !strings.Contains(w.Body.String(), `"conflict"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestTheTableOfRolesIsTrue compares the routes with the table of OPERATING.md.
func TestTheTableOfRolesIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[Role]string{}
	for role := Viewer; role <= Admin; role++ {
		_, row, _ := strings.Cut(string(text), "\n| `"+role.String()+"` | ")
		rows[role], _, _ = strings.Cut(row, " |\n")
	}
	const ofBuffer, ofQueue = "/api/v1/namespaces/{namespace}/", "/api/v1/namespaces/{namespace}/queues/{queue}/"
	const ofSchedule, acts = ofQueue + "schedules/{schedule}/", "put, delete, pause, trigger and backfill schedules"
	phrases := map[string]string{
		"/api/v1/reload": "reload", ofBuffer + "pause": "pause", ofBuffer + "resume": "resume", ofBuffer + "purge": "purge entries", ofBuffer + "dead/replay": "replay dead letters",
		ofBuffer + "dead/delete": "delete dead letters", ofQueue + "jobs/{job}/delete": "publish, promote, respawn, delete and purge jobs",
		ofQueue + "jobs/{job}/commit": "commit and roll back prepared jobs", ofQueue + "jobs/{job}/rollback": "commit and roll back prepared jobs", ofQueue + "dead/respawn": "publish, promote, respawn, delete and purge jobs",
		strings.TrimSuffix(ofSchedule, "/"): acts, ofSchedule + "pause": acts, ofSchedule + "resume": acts, ofSchedule + "trigger": acts, ofSchedule + "backfill": acts,
		ofQueue + "jobs": "publish, promote, respawn, delete and purge jobs", ofQueue + "jobs/{job}/promote": "publish, promote, respawn, delete and purge jobs",
		ofQueue + "dead/delete": "publish, promote, respawn, delete and purge jobs", ofQueue + "purge": "publish, promote, respawn, delete and purge jobs",
	}
	for _, rt := range setupRoles(nil).routes() {
		phrase := phrases[rt.path()]
		switch {
		case rt.role == probe:
			continue
		case rt.method() == "GET" && strings.HasPrefix(rt.path(), "/debug/"):
			phrase = "`/debug/pprof/`"
		case rt.method() == "GET":
			phrase = map[Role]string{Viewer: "see figures", Operator: "see payloads, with `mask_fields` hidden", Admin: "tokens"}[rt.role]
		case strings.Contains(rt.path(), "/rules"):
			phrase = "make and delete rules of queues"
		case strings.HasSuffix(rt.path(), "/workers/restart"):
			phrase = "tell PHP's workers to restart"
		case strings.HasPrefix(rt.path(), "/api/v1/control/"):
			phrase = "make and end namespaces of kind queue and tokens"
		}
		for role, row := range rows {
			if has := phrase != "" && strings.Contains(row, phrase); has != (role == rt.role) && !(phrase == "tokens" || phrase == "pause") {
				t.Errorf("%s %s needs the role %v, and %q stands in the row of %v: %v", rt.method(), rt.path(), rt.role, phrase, role, has)
			}
		}
	}
}

func TestAnotherAPIAuthorizesByRoleAndPagesCannotWrite(t *testing.T) {
	t.Parallel()
	var s *Server
	s = setupRoles(func(v *View) {
		v.More = func(path string) http.Handler {
			if path != "/more" && path != "/open" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if path == "/open" {
					return
				}
				if name, ok := s.Authorize(w, r, Admin); ok {
					w.Header().Set("Who", name)
					s.Record(r, Act{Action: "access_log", Detail: "enable"}, nil)
				}
			})
		}
	})
	for _, c := range []struct {
		path, token, site string
		status            int
		who               string
	}{
		{"/open", "", "", 200, ""},
		{"/more", "", "", 401, ""},
		{"/more", "wrong", "", 401, ""},
		{"/more", "viewer", "", 403, ""},
		{"/more", "operator", "", 403, ""},
		{"/more", "admin", "", 200, "admin-1"},
		{"/more", "admin", "cross-site", 403, ""},
		{"/other", "admin", "", 404, ""},
		{"/other", "", "", 401, ""},
	} {
		r := httptest.NewRequest("POST", "http://127.0.0.1"+c.path, nil)
		if c.token != "" {
			r.SetBasicAuth("anyone", c.token)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Who") != c.who {
			t.Errorf("%+v: got %d, %q", c, w.Code, w.Header().Get("Who"))
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%+v: headers %v", c, w.Header())
		}
	}
	if body := send(s, "GET", "/api/v1/audit", "viewer", "").Body.String(); strings.Count(body, `"name":"admin-1","role":"admin","action":"access_log"`) != 1 {
		t.Errorf("the trail is %s", body)
	}
}
