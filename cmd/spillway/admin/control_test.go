package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	zaplog "go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// fakeJobs are the jobs of each namespace: how many each Purge finds.
type fakeJobs struct {
	purges    []int64
	schedules int64
}

func (f *fakeJobs) Schedules(context.Context) (int64, error) { return f.schedules, nil }

func (f *fakeJobs) Jobs(context.Context) (int64, error) { return f.purges[0], nil }
func (f *fakeJobs) Purge(context.Context) (n int64, err error) {
	n, f.purges, f.schedules = f.purges[0], append(f.purges[1:], 0), 0
	return n, nil
}

// controlled is a server with a control document on an embedded store.
type controlled struct {
	*Server
	t     *testing.T
	c     *control.Control
	store *backend.Backend
	jobs  map[string]*fakeJobs
	logs  *zaplog.ObservedLogs

	jobStores []JobStore
}

func newControlled(t *testing.T) *controlled {
	t.Helper()
	store := backendtest.Open(t, backend.Config{URL: "embedded:"})
	c := &controlled{t: t, c: control.Open("sw", prometheus.NewRegistry(), zap.NewNop()), store: store, jobs: map[string]*fakeJobs{}}
	c.c.Use(control.File{
		Namespaces: []control.Namespace{{Name: "filed", Pool: "default", Policy: job.DefaultPolicy()}}, Buffers: []string{"buffer"}, Pools: []string{"fast"},
		Tokens: []control.Token{{Namespace: "filed", Name: "own", Hash: control.HashToken("own")}},
		Admins: []control.Admin{{Name: "admin-1", Role: "admin", Hash: control.HashToken("admin")}},
	}, control.Pools{"default": store, "fast": store})
	core, logs := zaplog.New(zap.InfoLevel)
	c.logs = logs
	c.Server = New(Config{Listen: "127.0.0.1:8081", Source: func() View {
		return View{Store: &fakeStore{}, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), Control: c.c, Jobs: c.jobStores, Queues: func(name string) verb.Queues {
			if j := c.jobs[name]; j != nil {
				return j
			}
			return nil
		}}
	}}, zap.New(core))
	return c
}

// post writes as an admin, expects a status and returns the answer.
func (c *controlled) post(path, body string, status int) (answer map[string]any) {
	c.t.Helper()
	w := send(c.Server, "POST", "/api/v1/control/"+path, "admin", body)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != status {
		c.t.Fatalf("%s %s: got %d %s, want %d", path, body, w.Code, w.Body, status)
	}
	return answer
}

func (c *controlled) list(path, key string) (rows []map[string]any) {
	c.t.Helper()
	var answer map[string][]map[string]any
	w := send(c.Server, "GET", "/api/v1/control/"+path, "admin", "")
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer[key] == nil {
		c.t.Fatalf("%s: got %d %s", path, w.Code, w.Body)
	}
	return answer[key]
}

func TestNamespacesAreMadeListedAndDeleted(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	made := c.post("namespaces", `{"namespace":"mail","pool":"fast","shards":4,"spread":{"bulk":2},"dead":"drop","description":"of the shop"}`, 200)
	if made["max_jobs"] != 10e6 || made["reply_ttl_ms"] != 600e3 || made["dead"] != "drop" {
		t.Errorf("got %v", made)
	}
	rows := c.list("namespaces", "namespaces")
	if len(rows) != 2 || rows[0]["namespace"] != "filed" || rows[0]["from_file"] != true || rows[0]["tokens"] != 1.0 ||
		rows[1]["namespace"] != "mail" || rows[1]["created_by"] != "admin-1" || fmt.Sprint(rows[1]["spread"]) != "map[bulk:2]" || rows[1]["from_file"] != false {
		t.Errorf("got %v", rows)
	}
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"namespace":"mail"}`:                          {409, "exists already"},
		`{"namespace":"filed"}`:                         {409, "the configuration file names it"},
		`{"namespace":"buffer"}`:                        {409, "the configuration file names it"},
		`{"namespace":"x","pool":"slow"}`:               {400, "no such pool"},
		`{"namespace":"a b"}`:                           {400, "name"},
		`{}`:                                            {400, "name"},
		`{"namespace":"x","shards":2000}`:               {400, "1 to 1024"},
		`{"namespace":"x","dead":"eat"}`:                {400, "keep or drop"},
		`{"namespace":"x","reply_ttl_ms":9e18}`:         {400, "reply_ttl_ms"},
		`{"namespace":"x","reply_ttl_ms":5}`:            {400, "reply_ttl"},
		`{"namespace":"x","kind":"buffer"}`:             {400, "unknown field"},
		`{"namespace":"x","shards":2,"spread":{"q":3}}`: {400, "2 to shards"},
	} {
		if got := c.post("namespaces", body, want.status); !strings.Contains(fmt.Sprint(got["message"]), want.text) {
			t.Errorf("%s: got %v, want %s", body, got, want.text)
		}
	}
	c.post("namespaces/none/delete", `{}`, 404)
	c.post("namespaces/filed/delete", `{"force":true}`, 409)
	c.post("namespaces/mail/delete", `{}`, 503) // its pool is not ready
	c.jobs["mail"] = &fakeJobs{purges: []int64{1}}
	if got := c.post("namespaces/mail/delete", `{}`, 409); !strings.Contains(fmt.Sprint(got["message"]), "it has 1 job: ") {
		t.Errorf("got %v", got)
	}
	c.jobs["mail"] = &fakeJobs{purges: []int64{7}}
	if got := c.post("namespaces/mail/delete", `{}`, 409); !strings.Contains(fmt.Sprint(got["message"]), "it has 7 jobs") {
		t.Errorf("got %v", got)
	}
	if got := c.post("namespaces/mail/delete", `{"force":true,"dry_run":true}`, 200); got["jobs"] != 7.0 || got["dry_run"] != true {
		t.Errorf("a dry run: %v", got)
	}
	c.post("namespaces/mail/delete", `{"dry_run":true}`, 409)
	if got := c.post("namespaces/mail/delete", `{"force":true}`, 200); got["jobs"] != 7.0 {
		t.Errorf("got %v", got)
	}
	c.post("namespaces", `{"namespace":"mail"}`, 200)
	c.jobs["mail"] = &fakeJobs{[]int64{0}, 2}
	if got := c.post("namespaces/mail/delete", `{}`, 409); !strings.Contains(fmt.Sprint(got["message"]), "it has schedules (2)") {
		t.Errorf("got %v", got)
	}
	c.post("namespaces/mail/delete", `{"force":true}`, 200)
	c.post("namespaces", `{"namespace":"mail"}`, 200)
	c.jobs["mail"] = &fakeJobs{purges: []int64{0}}
	if got := c.post("namespaces/mail/delete", `{}`, 200); got["jobs"] != 0.0 {
		t.Errorf("got %v", got)
	}
	if rows := c.list("namespaces", "namespaces"); len(rows) != 1 {
		t.Errorf("got %v", rows)
	}
}

func TestRejectionsOfControlNameWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	c.post("admin-tokens", `{"name":"alice","role":"viewer"}`, 200)
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"namespaces/none/delete", `{}`, 404, `there is no namespace "none" of kind queue`},
		{"namespaces/default/tokens", `{}`, 404, `the namespace "default" is of kind buffer: the configuration file has its settings and tokens`},
		{"admin-tokens", `{"name":"alice","role":"viewer"}`, 409, "a token of the admin port of that name or hash exists already"},
		{"admin-tokens/revoke", `{"name":"bob"}`, 404, "token bob of the admin port: no such entry"},
	} {
		if got := c.post(tt.path, tt.body, tt.status)["message"]; got != tt.want {
			t.Errorf("%s %s: got %v, want %s", tt.path, tt.body, got, tt.want)
		}
	}
}

func TestTokensAreMadeShownOnceAndRevoked(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	c.post("namespaces", `{"namespace":"mail"}`, 200)
	made := c.post("namespaces/mail/tokens", `{"name":"crm","description":"d","produce":"1000/min"}`, 200)
	text := made["token"].(string)
	if !strings.HasPrefix(text, "sw_") || made["hash"] != control.FormatHash(control.HashToken(text)) || made["name"] != "crm" {
		t.Errorf("got %v", made)
	}
	own := c.post("namespaces/mail/tokens", `{"hash":"`+control.FormatHash(control.HashToken("mine"))+`"}`, 200)
	if own["token"] != "" || own["name"] != control.ShortName(control.HashToken("mine")) {
		t.Errorf("got %v", own)
	}
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"name":"crm"}`:       {409, "exists already"},
		`{"name":"a b"}`:       {400, "name"},
		`{"produce":"lots"}`:   {400, "not a rate"},
		`{"hash":"mysecret"}`:  {400, "never the token itself"},
		`{"token":"mysecret"}`: {400, "unknown field"},
		`{"hash":"` + control.FormatHash(control.HashToken("")) + `"}`: {400, "not everybody"},
	} {
		got := fmt.Sprint(c.post("namespaces/mail/tokens", body, want.status)["message"])
		if !strings.Contains(got, want.text) || strings.Contains(got, "mysecret") {
			t.Errorf("%s: got %s, want %s", body, got, want.text)
		}
	}
	c.post("namespaces/buffer/tokens", `{}`, 404)

	if got := c.post("namespaces/mail/tokens/limit", `{"token":"crm","limit":{"read":1,"write":2,"interval":3}}`, 200); fmt.Sprint(got["limit"]) != "map[interval:3 read:1 write:2]" {
		t.Errorf("got %v", got)
	}
	c.post("namespaces/mail/tokens/limit", `{"token":"crm","limit":{"read":0,"write":0,"interval":3}}`, 400)
	c.post("namespaces/mail/tokens/limit", `{"token":"none"}`, 404)
	c.post("namespaces/filed/tokens/limit", `{"token":"own"}`, 409)
	list := func() []map[string]any { // of two tokens made in the same ms the name decides
		rows := c.list("namespaces/mail/tokens", "tokens")
		slices.SortFunc(rows, func(a, b map[string]any) int { return -strings.Compare(a["name"].(string), b["name"].(string)) })
		return rows
	}
	rows := list()
	if len(rows) != 2 || rows[0]["name"] != "crm" || rows[0]["produce"] != "1000/min" || rows[0]["consume"] != "" || rows[0]["readable"] != false || rows[0]["limit"] == nil {
		t.Errorf("got %v", rows)
	}
	c.post("namespaces/mail/tokens/limit", `{"token":"crm","limit":null}`, 200)
	if rows := list(); rows[0]["limit"] != nil {
		t.Errorf("got %v", rows[0])
	}

	c.post("namespaces/mail/tokens/revoke", `{"token":"crm"}`, 200)
	c.post("namespaces/mail/tokens/revoke", `{"token":"crm"}`, 404)
	c.post("namespaces/mail/tokens/revoke", `{"token":"`+fmt.Sprint(own["hash"])+`"}`, 200)
	c.post("namespaces/filed/tokens/revoke", `{"token":"own"}`, 409)
	if rows := c.list("namespaces/mail/tokens", "tokens"); len(rows) != 0 {
		t.Errorf("got %v", rows)
	}
	trail := send(c.Server, "GET", "/api/v1/audit", "viewer", "").Body.String()
	for _, want := range []string{"create_token", "revoke_token", "limit_token", "create_namespace", `"detail":"name crm, read 1, write 2 in 3s"`} {
		if !strings.Contains(trail, want) {
			t.Errorf("the trail lacks %s:\n%s", want, trail)
		}
	}
	if shown := trail + fmt.Sprint(c.logs.All()); strings.Contains(shown, text) || strings.Contains(shown, "mysecret") {
		t.Error("the trail or the log shows a token")
	}
}

func TestAdminTokensAreMadeAndRevoked(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	made := c.post("admin-tokens", `{"name":"alice","role":"viewer"}`, 200)
	if made["hash"] != control.FormatHash(control.HashToken(made["token"].(string))) {
		t.Errorf("got %v", made)
	}
	c.post("admin-tokens", `{"name":"alice","role":"admin"}`, 409)
	c.post("admin-tokens", `{"name":"bob","role":"god"}`, 400)
	rows := c.list("admin-tokens", "admin_tokens")
	if len(rows) != 2 || rows[0]["from_file"] != true || rows[1]["name"] != "alice" || rows[1]["role"] != "viewer" {
		t.Errorf("got %v", rows)
	}
	c.post("admin-tokens/revoke", `{"name":"admin-1"}`, 409)
	c.post("admin-tokens/revoke", `{"name":"alice"}`, 200)
	c.post("admin-tokens/revoke", `{"name":"alice"}`, 404)
}

// Whoever may only read, or act on jobs, makes no tokens and sees no list of admins.
func TestOnlyAdminsChangeNamespacesAndTokens(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	for _, rt := range c.routes() {
		if !strings.HasPrefix(rt.path(), "/api/v1/control/") {
			continue
		}
		want := Admin
		if strings.Contains(rt.path(), "/rules") { // they limit, and let nobody in
			want = Operator
		}
		if rt.method() == "GET" && !strings.Contains(rt.path(), "admin") {
			want = Viewer
		}
		if rt.role != want {
			t.Errorf("%s %s needs %s", rt.method(), rt.path(), rt.role)
		}
	}
	w := send(c.Server, "PUT", "/api/v1/control/namespaces", "admin", "{}")
	if allow := w.Header().Get("Allow"); w.Code != 405 || allow != "GET, HEAD, POST" || !strings.Contains(w.Body.String(), "use GET or POST") {
		t.Errorf("got %d, Allow %q, %s", w.Code, allow, w.Body)
	}
}

func TestWithoutTheStoreNothingIsChanged(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	c.post("namespaces", `{"namespace":"mail"}`, 200)
	_ = c.store.Close()
	c.post("namespaces", `{"namespace":"other"}`, 503)
	c.post("namespaces/mail/tokens", `{}`, 503)
	if rows := c.list("namespaces", "namespaces"); !slices.ContainsFunc(rows, func(r map[string]any) bool { return r["namespace"] == "mail" }) {
		t.Errorf("got %v", rows)
	}
}

func TestRulesAreMadeListedAndDeleted(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	c.post("namespaces/filed/rules", `{"match":"crm-*","rate":"50/s","burst":50}`, 200)
	c.post("namespaces/filed/rules", `{"match":"crm-eu","tries":9}`, 200)
	if got := c.post("namespaces/filed/rules", `{"match":"crm-*","rate":"none"}`, 200); fmt.Sprint(got["replaced"]) != "map[burst:50 rate:50/s]" {
		t.Errorf("replaced: got %v", got)
	}
	if got := c.post("namespaces/filed/rules", `{"match":"crm-*","rate":"none"}`, 200); got["replaced"] != nil {
		t.Errorf("the same again: got %v", got)
	}
	w := send(c.Server, "GET", "/api/v1/control/namespaces/filed/rules", "viewer", "")
	if want := `{"rules":[{"match":"crm-eu","rate":"","burst":0,"concurrency":0,"tries":9,`; !strings.HasPrefix(w.Body.String(), want) ||
		!strings.Contains(w.Body.String(), `{"match":"crm-*","rate":"none","burst":0,"concurrency":0,"tries":0,`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if err := c.c.ChangeRule(t.Context(), "filed", "crm-eu", "app", func(r *control.Rule) error { r.Tries = 1; return nil }); err != nil {
		t.Fatal(err)
	}
	rules := gjson.Get(send(c.Server, "GET", "/api/v1/control/namespaces/filed/rules", "viewer", "").Body.String(), "rules.#.created_by").Raw
	if want := `["admin-1","admin-1","SQS client app"]`; rules != want {
		t.Errorf("got %s, want %s", rules, want)
	}
	if trail := send(c.Server, "GET", "/api/v1/audit", "viewer", "").Body.String(); !strings.Contains(trail, `"detail":"match crm-* {\"rate\":\"50/s\",\"burst\":50}"`) {
		t.Errorf("the trail: %s", trail)
	}
	for body, want := range map[string]string{
		`{"match":"a b","tries":1}`:             "match",
		`{"match":"a","rate":"0"}`:              "write a rate such as 50/s",
		`{"match":"a","rate":"0/s"}`:            "write a rate such as 50/s",
		`{"match":"a","rate":"1000001/s"}`:      "write a rate such as 50/s",
		`{"match":"a"}`:                         "To lift a limit, delete the rule",
		`{"match":"a","burst":3}`:               "beside a rate",
		`{"match":"a","rate":"5/s","x":1}`:      "x",
		`{"match":"a","tries":65536}`:           "1 to 65535",
		`{"match":"","rate":"5/s"}`:             "match",
		`{"match":"a","rate":"5/s","burst":-1}`: "1 to 10000",
	} {
		if got := c.post("namespaces/filed/rules", body, 400); !strings.Contains(fmt.Sprint(got["message"]), want) {
			t.Errorf("%s: got %v, want %s", body, got["message"], want)
		}
	}
	c.post("namespaces/filed/rules/delete", `{"match":"crm-*"}`, 200)
	if got := c.post("namespaces/filed/rules/delete", `{"match":"crm-*"}`, 404); got["error"] != "no_such_rule" {
		t.Errorf("got %v", got)
	}
	c.post("namespaces/nowhere/rules", `{"match":"a","tries":1}`, 404)
	c.post("namespaces/buffer/rules", `{"match":"a","tries":1}`, 404)
	if w := send(c.Server, "POST", "/api/v1/control/namespaces/filed/rules", "viewer", `{"match":"a","tries":1}`); w.Code != 403 {
		t.Errorf("a viewer: got %d", w.Code)
	}
	if w := send(c.Server, "POST", "/api/v1/control/namespaces/filed/rules", "operator", `{"match":"a","tries":1}`); w.Code != 200 {
		t.Errorf("an operator: got %d %s", w.Code, w.Body)
	}
}
