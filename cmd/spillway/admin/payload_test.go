package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/mask"
	"github.com/spillway-io/spillway/partition/php"
)

func TestPayloadsAreMaskedBeforeTheyAreCut(t *testing.T) {
	t.Parallel()
	masks := mask.DefaultFields()
	long := strings.Repeat("é", maxShown) // two bytes each
	for _, tt := range []struct {
		name, raw  string
		data, text string
		base64     bool
		cut        bool
	}{
		{"JSON", `{"a":1,"password":"x"}`, `{"a":1,"password":"***"}`, "", false, false},
		{"a number", `5`, `5`, "", false, false},
		{"text", `password=x`, "", `password=x`, false, false},
		{"markup", `<script>alert(1)</script>`, "", `<script>alert(1)</script>`, false, false},
		{"bytes", "\xff\x00", "", "", true, false},
		{"nothing", "", "", "", false, false},
		{"JSON with broken UTF-8", "{\"a\":\"\xff\",\"secret\":\"x\"}", "{\"a\":\"\uFFFD\",\"secret\":\"***\"}", "", false, false},
		{"long text", long, "", long[:maxShown], false, true},
		{"long JSON", `{"token":"canary","a":"` + long + `"}`, "", (`{"token":"***","a":"` + long)[:maxShown], false, true},
		{"long bytes", "\xff" + long, "", "", true, true},
	} {
		p := payloadOf([]byte(tt.raw), masks)
		if string(p.Data) != tt.data || p.Text != tt.text || (p.Base64 != "") != tt.base64 || p.Cut != tt.cut || p.Bytes != len(tt.raw) {
			t.Errorf("%s: got %.60s %.60s %.60s cut %v of %d bytes", tt.name, p.Data, p.Text, p.Base64, p.Cut, p.Bytes)
		}
		if !utf8.ValidString(p.Text) || strings.Contains(p.Text, "canary") {
			t.Errorf("%s: the text is broken or shows a masked value", tt.name)
		}
		if raw, err := base64.StdEncoding.DecodeString(p.Base64); err != nil || len(raw) > maxShown || !bytes.HasPrefix([]byte(tt.raw), raw) {
			t.Errorf("%s: base64 of something else", tt.name)
		}
	}
	if p := payloadOf([]byte(`{"password":"x"}`), nil); string(p.Data) != `{"password":"x"}` {
		t.Errorf("without masks: %s", p.Data)
	}
}

// peeked answers every Peek with the same entries.
type peeked struct {
	closedStore
	entries []partition.Entry
}

func (p *peeked) Peek(context.Context, *partition.Namespace, string, partition.PeekRequest) (partition.Peeked, error) {
	return partition.Peeked{Depth: int64(len(p.entries)), Entries: p.entries}, nil
}

// Payloads come from anybody. An answer is JSON by type, by the bytes, and by what browsers
// are told to make of it.
func TestHostilePayloadsComeBackAsJSON(t *testing.T) {
	t.Parallel()
	payloads := []string{
		`</script><script>alert(1)</script>`, `{"a":"</script><img src=x onerror=alert(1)>"}`, "\u202egnp.exe", "<!--", "\x00\x1b[2J", "\u2028\u2029",
		strings.Repeat("<", 40<<10), `{"\u003cscript\u003e":"\u202e"}`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "\xef\xbb\xbf<html>", strings.Repeat("[", 20000),
	}
	store := &peeked{}
	for i, p := range payloads {
		store.entries = append(store.entries, partition.Entry{Seq: int64(i + 1), Occurred: 1, Payload: []byte(p)})
	}
	s := setupRoles(func(v *View) { v.Store = store })
	w := send(s, "GET", "/api/v1/namespaces/default/partitions/p/peek", "operator", "")
	var answer Peek
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Entries) != len(payloads) {
		t.Fatalf("%d: %v, %d entries", w.Code, err, len(answer.Entries))
	}
	if strings.ContainsAny(w.Body.String(), "<>\u2028\u2029\x00\x1b") {
		t.Error("the answer holds markup, line ends or controls as they are")
	}
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got the headers %v", w.Header())
	}
	for _, path := range []string{"?sort=%3Cscript%3E", "?q=%3Cscript%3E%E2%80%AE", "/%3Cscript%3E", "/a%E2%80%AE", "/a/peek?from=%3Cb%3E", "/a/peek?limit=%3Cb%3E"} {
		w := send(s, "GET", "/api/v1/namespaces/default/partitions"+path, "operator", "")
		if strings.ContainsAny(w.Body.String(), "<>") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestUnmaskedNeedsAnAdmin(t *testing.T) {
	t.Parallel()
	s := setupRoles(func(v *View) {
		v.Store = &peeked{entries: []partition.Entry{{Seq: 1, Occurred: 1, Payload: []byte(`{"email":"a@b"}`)}}}
	})
	const peek = "/api/v1/namespaces/default/partitions/p/peek"
	for _, tt := range []struct {
		path, token, want string
		status            int
	}{
		{peek, "operator", `"email":"***"`, 200},
		{peek, "admin", `"email":"***"`, 200},
		{peek + "?unmasked=1", "operator", "unmasked needs the role admin", 403},
		{peek + "?unmasked=1", "admin", `"email":"a@b"`, 200},
		{peek + "?unmasked=often", "admin", "want 1 or 0", 400},
		{"/api/v1/namespaces/default/tail?unmasked=1", "operator", "unmasked needs the role admin", 403},
	} {
		if w := send(s, "GET", tt.path, tt.token, ""); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s as %s: got %d %s", tt.path, tt.token, w.Code, w.Body)
		}
	}
}

func TestWhatASinkSaidIsMaskedAsThePayload(t *testing.T) {
	t.Parallel()
	payload := `{"user":{"email":"ann@example.com","pin":7},"card":4111222233334444}`
	for said, want := range map[string]string{
		`400: {"error":"bad","got":{"email":"ann@example.com","n":1}}`: `400: {"error":"bad","got":{"email: ***`,
		`ann@example.com is not a number`:                              `*** is not a number`,
		`rejected: 4111222233334444 at row 3`:                          `rejected: *** at row 3`,
		`row {\"Email\": \"other@example.com\"} rejected`:              `row {\"Email: ***`,
		`token=abc; path=/`:                                            `token: ***`,
		`the token is old`:                                             `the token is old`,
		`connection reset`:                                             `connection reset`,
		``:                                                             ``,
	} {
		l := letterOf(partition.Letter{Error: said, Payload: []byte(payload)}, mask.DefaultFields())
		if l.Detail != want {
			t.Errorf("%s: got %s, want %s", said, l.Detail, want)
		}
		if l := letterOf(partition.Letter{Detail: said, Payload: []byte(payload)}, nil); l.Detail != said {
			t.Errorf("without masks: got %s", l.Detail)
		}
	}
}

// phpShop is a server on queues of a PHP application.
func phpShop(t *testing.T, masks ...string) (*Server, *php.Store) {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: redistest.Start(t).URL()})
	policy := php.DefaultPolicy("laravel")
	policy.Rules = []job.Rule{{Match: "mail"}}
	store, err := php.Open(php.Config{Prefix: "sw", Namespaces: map[string]php.Policy{"shop": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(Config{Listen: "127.0.0.1:8081", Source: func() View {
		return View{
			Store: &fakeStore{}, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), MaskFields: masks, Jobs: []JobStore{store},
			Workers: func(string) []jobs.Worker { return []jobs.Worker{{Name: "host-1", Children: 4, SinceMS: 1}} },
		}
	}}, zap.NewNop()), store
}

// die publishes jobs of a class, and makes them dead letters.
func die(t *testing.T, store *php.Store, class string, n int) {
	t.Helper()
	ns, lane := store.Namespace("shop"), store.NewLane()
	for n > 0 {
		page := min(n, 100)
		n -= page
		p := &job.Publish{Namespace: ns, Queue: "mail"}
		for range page {
			text, _ := json.Marshal(map[string]any{"displayName": class, "job": class + "@handle", "maxTries": 1, "data": map[string]string{"password": "canary"}, "id": "x", "attempts": 0})
			p.Messages = append(p.Messages, job.Message{Payload: text})
		}
		store.Run(t.Context(), lane, &job.Batch{Publishes: []*job.Publish{p}})
		c := &job.Claim{Namespace: ns, Queues: []string{"mail"}, TTR: time.Minute, Count: page}
		store.Run(t.Context(), lane, &job.Batch{Claims: []*job.Claim{c}})
		b := &job.Batch{}
		for _, j := range c.Jobs {
			b.Settles = append(b.Settles, &job.Settle{Namespace: ns, Queue: "mail", Ref: j.Ref, Attempt: j.Attempt, Verb: job.Bury})
		}
		if store.Run(t.Context(), lane, b); p.Err != nil || c.Err != nil || len(b.Settles) != page {
			t.Fatal(p.Err, c.Err, len(b.Settles))
		}
	}
}

func TestTheCausesOfDeadLettersOfPHPBeginWithTheirClass(t *testing.T) {
	t.Parallel()
	s, store := phpShop(t, mask.DefaultFields()...)
	die(t, store, `App\Jobs\Old`, 150)
	die(t, store, `App\Jobs\Mail`, 900)
	die(t, store, strings.Repeat("L", 300), 30)
	var jobs DeadJobs
	var got DeadCauses
	for path, to := range map[string]any{"?limit=1": &jobs, "?by=cause": &got} {
		w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead"+path, "operator", "")
		if err := json.Unmarshal(w.Body.Bytes(), to); err != nil || w.Code != http.StatusOK || strings.Contains(w.Body.String(), "canary") {
			t.Fatalf("%v: %d %.300s", err, w.Code, w.Body)
		}
	}
	counted := ""
	for _, c := range got.Causes {
		counted += fmt.Sprintln(c.Count, c.Cause, c.Example)
	}
	if want := `900 App\Jobs\Mail: buried App\Jobs\Mail: buried
150 App\Jobs\Old: buried App\Jobs\Old: buried
30 ` + strings.Repeat("L", 200) + " " + strings.Repeat("L", 200) + ": buried\n"; counted != want || got.Looked != 1080 || !got.Complete {
		t.Errorf("got %s of %d, want %s", counted, got.Looked, want)
	}
	if jobs.Total != 1080 || jobs.Jobs[0].Class != `App\Jobs\Old` || jobs.Jobs[0].Attempt == nil || *jobs.Jobs[0].Attempt != 1 {
		t.Errorf("got %+v", jobs)
	}
	if w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?by=cause", "viewer", ""); w.Code != http.StatusForbidden {
		t.Errorf("a viewer: %d", w.Code)
	}
	if w := send(s, "POST", "/api/v1/namespaces/shop/queues/mail/dead/respawn", "operator", `{"cause":"App: buried","dry_run":true}`); w.Code != http.StatusNotFound {
		t.Errorf("PHP's respawn by nothing but their number: got %d %s", w.Code, w.Body)
	}
}

func TestAClassIsMaskedWithTheKeysThatNameIt(t *testing.T) {
	t.Parallel()
	s, store := phpShop(t, "password", "JOB")
	die(t, store, `App\Jobs\Mail`, 2)
	if w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?by=cause", "operator", ""); !strings.Contains(w.Body.String(), `"cause":"***: buried","count":2`) {
		t.Errorf("got %s", w.Body)
	}
	if w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead", "operator", ""); !strings.Contains(w.Body.String(), `"class":"***"`) {
		t.Errorf("got %s", w.Body)
	}
	if w := send(s, "GET", "/api/v1/namespaces/shop/queues/mail/dead?unmasked=1", "admin", ""); !strings.Contains(w.Body.String(), `"class":"App\\Jobs\\Mail"`) {
		t.Errorf("an admin: got %s", w.Body)
	}
}

func TestWorkersAreListedAndThoseOfPHPRestartedByAnOperator(t *testing.T) {
	t.Parallel()
	s, _ := phpShop(t)
	if w := send(s, "GET", "/api/v1/namespaces/shop/workers", "viewer", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"name":"host-1","children":4`) || !strings.Contains(w.Body.String(), `"since_ms":1`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	for role, want := range map[string]int{"viewer": 403, "operator": 200} {
		if w := send(s, "POST", "/api/v1/namespaces/shop/workers/restart", role, "{}"); w.Code != want {
			t.Errorf("%s: got %d %s", role, w.Code, w.Body)
		}
	}
	if w := send(s, "GET", "/api/v1/audit", "viewer", ""); !strings.Contains(w.Body.String(), `"action":"restart_workers","namespace":"shop"`) {
		t.Errorf("the audit trail: %s", w.Body)
	}
	q := newQueued(t)
	q.rejected("POST", "/workers/restart", "operator", "{}", 404, "send them SIGTERM")
}

func TestWhatOnlyQueuesHaveIsNoRouteOfPHPs(t *testing.T) {
	t.Parallel()
	s, store := phpShop(t)
	job := "/queues/mail/jobs/" + store.Namespace("shop").ID(0, "mail", 1, "")
	for _, route := range []string{"GET /schedules", "GET /owners", "GET /queues/mail/jobs?state=ready", "GET " + job + "/trace",
		"POST " + job + "/promote", "POST " + job + "/commit", "POST /pause", "POST /resume"} {
		method, path, _ := strings.Cut(route, " ")
		body := ""
		if method == "POST" {
			body = "{}"
		}
		if path == "/pause" || path == "/resume" {
			body = `{"part":"mail"}`
		}
		if w := send(s, method, "/api/v1/namespaces/shop"+path, "operator", body); w.Code != 404 || !strings.Contains(w.Body.String(), "queues of PHP's have no") {
			t.Errorf("%s: got %d %s", route, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/namespaces/shop/forecast", "/namespaces/shop/queues/mail/forecast", "/namespaces/shop/queues/mail"} {
		if w := send(s, "GET", "/api/v1"+path, "viewer", ""); w.Code != 200 {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}
