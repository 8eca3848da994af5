package lmstfy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

var prefixes atomic.Int64

// adminPort is an Admin over a Control on a real redis-server.
type adminPort struct {
	t       testing.TB
	handler *Admin
	control *control.Control
	logs    *observer.ObservedLogs
	down    error // of Queues
	mu      sync.Mutex
	acts    []string // as they were recorded
}

// newControl makes a Control that has a namespace "filed" of the file, in the pool fast, with
// a token.
func newControl(t testing.TB, url string) *control.Control {
	t.Helper()
	reg := prometheus.NewRegistry()
	b := backendtest.Open(t, backend.Config{URL: url})
	c := control.Open("lmstfy"+string(rune('a'+prefixes.Add(1))), reg, zap.NewNop())
	c.Use(control.File{
		Volatile:   []string{DefaultPool, "fast"},
		Namespaces: []control.Namespace{{Name: "filed", Pool: "fast", Policy: job.DefaultPolicy()}, {Name: "open", Pool: DefaultPool, Policy: job.DefaultPolicy()}},
		Buffers:    []string{"buffer"}, Open: []string{"open"}, Pools: []string{"fast"},
		Tokens: []control.Token{{Namespace: "filed", Hash: control.HashToken("filedfiledfiledfiled"), Name: "filed"}},
	}, control.Pools{DefaultPool: b, "fast": b})
	t.Cleanup(func() { _ = b.Close() })
	return c
}

func newAdmin(t testing.TB, url string) *adminPort {
	core, logs := observer.New(zapcore.DebugLevel)
	p := &adminPort{t: t, control: newControl(t, url), logs: logs}
	p.handler = NewAdmin(AdminConfig{
		Control: p.control, Pools: func() []string { return []string{DefaultPool, "fast"} },
		Queues: func(_ context.Context, namespace string) ([]string, error) {
			if namespace == "open" {
				return nil, p.down
			}
			return []string{"q1", namespace}, p.down
		},
		Authorize: func(w http.ResponseWriter, r *http.Request, _ bool) (string, bool) {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				answerText(w, http.StatusUnauthorized, "no")
				return "", false
			}
			return "root", true
		},
		Record: func(_ *http.Request, action, namespace, detail string, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.acts = append(p.acts, strings.TrimSuffix(fmt.Sprint(action, " ", namespace, " ", detail, " ", err), " <nil>"))
		},
		Version: Version{"abc", "2026-11-22", "1.2.3"}, AccessLog: &AccessLog{}, Log: zap.New(core),
	})
	return p
}

func (p *adminPort) do(method, path, body string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.SetBasicAuth("anyone", "secret")
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w
}

type adminStep struct {
	method, path, body string
	status             int
	want               string
}

func (p *adminPort) play(steps []adminStep) {
	p.t.Helper()
	for _, s := range steps {
		w := p.do(s.method, s.path, s.body, func(r *http.Request) {
			if !strings.HasPrefix(s.body, "{") {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
		})
		if got := masked(w.Body.String()); w.Code != s.status || got != s.want {
			p.t.Errorf("%s %.120s %s: got %d %s, want %d %s", s.method, s.path, s.body, w.Code, got, s.status, s.want)
		}
		if masked(w.Header().Get(headerRequestID)) != "ID" {
			p.t.Errorf("%s %.120s: request id %q", s.method, s.path, w.Header().Get(headerRequestID))
		}
		if got := w.Header().Get("Content-Type"); s.status != 204 && got != jsonType {
			p.t.Errorf("%s %.120s: content type %q", s.method, s.path, got)
		}
	}
}

func indented(t testing.TB, v any) string {
	text, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const chosen = "chosen-by-the-user-20"

func TestAdminAnswersPoolsVersionAndInfo(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	p.play([]adminStep{
		{"GET", "/pools", "", 200, "[\n    \"default\",\n    \"fast\"\n]"},
		{"GET", "/version", "", 200, "{\n    \"build_commit\": \"abc\",\n    \"build_date\": \"2026-11-22\",\n    \"version\": \"1.2.3\"\n}"},
		{"GET", "/info", "", 200, "{}"},
		{"GET", "/info?pool=fast", "", 200, indented(t, map[string][]string{"filed": {"q1", "filed"}})},
		{"GET", "/info?pool=none", "", 200, "{}"},
		{"HEAD", "/version", "", 404, text("api not found")},
		{"DELETE", "/pools", "", 404, text("api not found")},
		{"GET", "/token/", "", 404, text("api not found")},
	})
	p.down = errDown
	p.play([]adminStep{{"GET", "/info?pool=fast", "", 500, text("internal error")}})
}

func TestAdminChecksWhatATokenIsMadeOfInOrder(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	noDescription, tooShort := text("invalid description"), text("the user token was too short")
	long, forbidden, noPool := text("the namespace name was too long"), text("namespace name contains forbidden characters"), text("the pool was not exists")
	n65 := strings.Repeat("n", 65)
	made := indented(t, map[string]string{"token": "ID"})
	p.play([]adminStep{
		{"POST", "/token/" + n65, "", 400, noDescription},
		{"POST", "/token/a?description=", "", 400, noDescription},
		{"POST", "/token/a?token=short&pool=none", "", 400, noDescription},
		{"POST", "/token/" + n65 + "?description=x&token=" + chosen[:19], "", 400, tooShort},
		{"POST", "/token/" + n65 + "?description=x&pool=none", "", 400, long},
		{"POST", "/token/n.s?description=x&pool=none", "", 400, forbidden},
		{"POST", "/token/_n?description=x", "", 400, forbidden},
		{"POST", "/token/n%20s?description=x", "", 400, forbidden},
		{"POST", "/token/n%2Fs?description=x", "", 400, forbidden},
		{"POST", "/token/a?description=x&pool=none", "", 400, noPool},
		{"POST", "/token/a?description=x&token=pool:" + chosen, "", 400, text("the user token has a ':', which ends the name of a pool")},
		{"POST", "/token/a?description=a%22%0A%3Cb%3E", "", 201, made},
		{"POST", "/token/a?description=&pool=&token=", "description=of+a+form", 201, made},
		{"POST", "/token/a?description=x&token=" + chosen[:20], "", 201, indented(t, map[string]string{"token": chosen[:20]})},
		{"POST", "/token/a", "description=x&token=" + chosen[:20], 400, text("the token has already existed")},
		{"POST", "/token/a?description=x&pool=fast", "", 400, text("the namespace is in the pool default")},
		{"POST", "/token/b?description=x&pool=fast&token=" + chosen, "", 201, indented(t, map[string]string{"token": "fast:" + chosen})},
		{"POST", "/token/b?description=x&token=" + chosen + "-2", "", 201, indented(t, map[string]string{"token": "fast:" + chosen + "-2"})},
		{"GET", "/token/b", "", 200, indented(t, map[string]any{"tokens": map[string]string{"fast:" + chosen: "x", "fast:" + chosen + "-2": "x"}})},
		{"GET", "/token/b?pool=default", "", 200, indented(t, map[string]any{"tokens": map[string]string{}})},
		{"GET", "/token/b?pool=none", "", 400, noPool},
		{"GET", "/token/nobody", "", 200, indented(t, map[string]any{"tokens": map[string]string{}})},
		{"GET", "/token/filed", "", 200, indented(t, map[string]any{"tokens": map[string]string{}})},
		{"DELETE", "/token/b/fast:" + chosen, "", 204, ""},
		{"DELETE", "/token/b/" + chosen, "", 204, ""},
		{"DELETE", "/token/b/default:" + chosen + "-2", "", 204, ""},
		{"DELETE", "/token/nobody/x", "", 204, ""},
		{"GET", "/token/b", "", 200, indented(t, map[string]any{"tokens": map[string]string{}})},
	})
	for _, path := range []string{"POST /token/buffer?description=x", "POST /token/open?description=x", "DELETE /token/filed/filedfiledfiledfiled", "POST /token/a?description=" + strings.Repeat("x", 600), "POST /token/a?description=x&token=" + strings.Repeat("t", 300), "POST /token/a?description=x&token=with%20space%20with%20space"} {
		method, path, _ := strings.Cut(path, " ")
		if w := p.do(method, path, "", nil); w.Code != 400 || !strings.Contains(w.Body.String(), `{"error":"`) {
			t.Errorf("%s %.80s: got %d %s", method, path, w.Code, w.Body)
		}
	}
}

func TestARejectedTokenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	for namespace, want := range map[string]string{
		"open":   "namespace open: the configuration file lists no token there, so everybody is let in: list the first one in the file (spillway token prints one with its hash) and reload",
		"buffer": "namespace buffer is a buffer: the configuration file names it: change it there, and reload",
	} {
		if w := p.do("POST", "/token/"+namespace+"?description=x", "", nil); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s", namespace, w.Code, w.Body)
		}
	}
}

func TestAdminSetsLimits(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	limit := "/token/a/" + chosen + "/limit"
	interval := text(`interval should be \u003e 0`)
	zero := text(`read or write should be \u003e 0`)
	noJSON := text("the body should be a JSON object with the numbers read, write and interval")
	row := `[{"namespace":"a","token":"` + chosen + `","limiter":{"read":5,"write":6,"interval":7}}]`
	p.play([]adminStep{
		{"POST", limit, `{"read":1,"interval":1}`, 404, text("token not found")},
		{"POST", "/token/a?description=x&token=" + chosen, "", 201, indented(t, map[string]string{"token": chosen})},
		{"GET", limit, "", 404, "null"},
		{"GET", "/limits", "", 200, "[]"},
		{"POST", limit, "", 400, noJSON},
		{"POST", limit, "{", 400, noJSON},
		{"POST", limit, `{"read":1.5,"interval":1}`, 400, noJSON},
		{"POST", limit, `{"read":9223372036854775808,"interval":1}`, 400, noJSON},
		{"POST", limit, `{}`, 400, zero},
		{"POST", limit, `{"read":0,"write":0,"interval":1}`, 400, zero},
		{"POST", limit, `{"read":1,"write":0,"interval":0}`, 400, interval},
		{"POST", limit, `{"read":1,"interval":-1}`, 400, interval},
		{"POST", limit, `{"read":2,"interval":3,"zz":1}`, 201, `{"limiter":{"read":2,"write":0,"interval":3}}`},
		{"POST", limit, `{"read":2,"interval":3}`, 500, text("throttler token(" + chosen + ") has already exists")},
		{"GET", limit, "", 200, `{"read":2,"write":0,"interval":3}`},
		{"PUT", limit, `{"read":5,"write":6,"interval":7}`, 200, `{"limiter":{"read":5,"write":6,"interval":7}}`},
		{"GET", "/limits", "", 200, row},
		{"GET", "/token/a/default:" + chosen + "/limit", "", 200, `{"read":5,"write":6,"interval":7}`},
		{"DELETE", limit, "", 200, `{"msg":"success"}`},
		{"DELETE", limit, "", 200, `{"msg":"success"}`},
		{"DELETE", "/token/a/nobody/limit", "", 200, `{"msg":"success"}`},
		{"GET", limit, "", 404, "null"},
		{"PUT", limit, `{"read":1,"write":1,"interval":1}`, 200, `{"limiter":{"read":1,"write":1,"interval":1}}`},
	})
	for _, body := range []string{`{"read":-1,"write":0,"interval":1}`, `{"read":1,"interval":86401}`, `{"read":1000000001,"interval":1}`} {
		if w := p.do("PUT", limit, body, nil); w.Code != 400 || !strings.Contains(w.Body.String(), `{"error":"`) {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
	}
	if w := p.do("PUT", "/token/filed/filedfiledfiledfiled/limit", `{"read":1,"interval":1}`, nil); w.Code != 400 {
		t.Errorf("a token of the file: got %d %s", w.Code, w.Body)
	}
}

func TestAdminSwitchesTheAccessLog(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	enabled, disabled := `{"status":"enabled"}`, `{"status":"disabled"}`
	p.play([]adminStep{
		{"GET", "/accesslog", "", 200, disabled},
		{"GET", "/accesslog?status=enable", "", 200, disabled},
		{"POST", "/accesslog?status=enable", "", 200, enabled},
		{"GET", "/accesslog?status=disable", "", 200, enabled},
		{"POST", "/accesslog", "status=disable", 200, disabled},
		{"POST", "/accesslog?status=x", "", 400, text("invalid status")},
		{"POST", "/accesslog", "", 400, text("invalid status")},
	})
}

func TestAdminWantsItsTokenWhereTokensOrQueuesAreShown(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	for _, c := range []string{"POST /token/a?description=x", "GET /token/a", "DELETE /token/a/b", "POST /token/a/b/limit", "PUT /token/a/b/limit", "GET /token/a/b/limit", "DELETE /token/a/b/limit", "GET /limits", "GET /accesslog", "POST /accesslog?status=enable", "GET /info"} {
		method, path, _ := strings.Cut(c, " ")
		if w := p.do(method, path, "", func(r *http.Request) { r.Header.Del("Authorization") }); w.Code != 401 {
			t.Errorf("%s: got %d %s", c, w.Code, w.Body)
		}
	}
	if got := p.control.Snapshot().Namespace("a"); got != nil {
		t.Error("a request without a token made a namespace")
	}
}

func TestAdminRecordsItsActsWithoutTokens(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	p.do("POST", "/token/a?description=x&token="+chosen, "", nil)
	p.do("PUT", "/token/a/"+chosen+"/limit", `{"read":1,"interval":1}`, nil)
	p.do("DELETE", "/token/a/"+chosen+"/limit", "", nil)
	p.do("DELETE", "/token/a/"+chosen, "", nil)
	p.do("DELETE", "/token/filed/filedfiledfiledfiled", "", nil)
	p.do("POST", "/accesslog?status=enable", "", nil)
	name := control.ShortName(control.HashToken(chosen))
	want := []string{
		"create_namespace a pool ", "create_token a name " + name, "limit_token a name " + name + ", read 1 and write 0 in 1 s",
		"limit_token a name " + name + ", none", "revoke_token a name " + name,
		"revoke_token filed name " + control.ShortName(control.HashToken("filedfiledfiledfiled")) + " the configuration file names it: change it there, and reload",
		"access_log  enable",
	}
	if !slices.EqualFunc(p.acts, want, strings.HasPrefix) && fmt.Sprintf("%q", p.acts) != fmt.Sprintf("%q", want) {
		t.Errorf("got\n%q, want\n%q", p.acts, want)
	}
	for _, entry := range p.logs.All() {
		line, _ := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}).EncodeEntry(entry.Entry, entry.Context)
		if strings.Contains(line.String(), chosen) {
			t.Errorf("line %s", line)
		}
	}
}

func TestAdminAnswersAnOutageWith500(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	p := newAdmin(t, "redis://"+addr)
	for _, c := range []string{"POST /token/a?description=x", "DELETE /token/a/b", "PUT /token/a/b/limit", "DELETE /token/a/b/limit"} {
		method, path, _ := strings.Cut(c, " ")
		if w := p.do(method, path, `{"read":1,"interval":1}`, nil); w.Code != 500 || w.Body.String() != text("internal error") || strings.Contains(w.Body.String(), addr) {
			t.Errorf("%s: got %d %s", c, w.Code, w.Body)
		}
	}
}

func TestTwoAdminsMakeOneTokenOnce(t *testing.T) {
	t.Parallel()
	p := newAdmin(t, "redis://"+redistest.Shared(t))
	codes := make(chan int, 8)
	for range cap(codes) {
		go func() { codes <- p.do("POST", "/token/a?description=x&token="+chosen, "", nil).Code }()
	}
	var got []int
	for range cap(codes) {
		got = append(got, <-codes)
	}
	slices.Sort(got)
	if want := []int{201, 400, 400, 400, 400, 400, 400, 400}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
