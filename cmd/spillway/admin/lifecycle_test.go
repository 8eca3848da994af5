package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

// fakeStore has the namespace "default".
type fakeStore struct {
	Store
	overview func() (partition.Overview, error)
	audit    func() (int64, error)
}

var _ Store = (*fakeStore)(nil)

var fakeNamespace = &partition.Namespace{Name: "default", Policy: partition.DefaultPolicy()}

func (f *fakeStore) Namespaces() []*partition.Namespace {
	return []*partition.Namespace{fakeNamespace}
}

func (f *fakeStore) Namespace(name string) *partition.Namespace {
	if name != "default" {
		return nil
	}
	return fakeNamespace
}

func (f *fakeStore) ServerVersion() string { return "7.4.1" }

func (f *fakeStore) Overview(context.Context, *partition.Namespace) (partition.Overview, error) {
	if f.overview == nil {
		return partition.Overview{}, nil
	}
	return f.overview()
}

func (f *fakeStore) Audit(context.Context, *partition.Namespace) (int64, error) {
	return f.audit()
}

// fakeHealth stands in for the watch.
type fakeHealth struct {
	err   error
	warns []string
}

func (f *fakeHealth) Ready() error       { return f.err }
func (f *fakeHealth) Warnings() []string { return f.warns }

// setup makes an admin handler on a fake store that works and is ready.
func setup(listen string) (*fakeStore, *fakeHealth, http.Handler) {
	f := &fakeStore{
		overview: func() (partition.Overview, error) {
			return partition.Overview{
				Ledger:    partition.Ledger{Accepted: 21, Delivered: 6, Evicted: 5, Expired: 4, Dead: 3, Lost: 2, Buffered: 1},
				Reclaimed: 7, DeadLetters: 3, DeadEvicted: 8, DeadBytes: 640, Partitions: 9, Overdue: 1500 * time.Millisecond,
			}, nil
		},
		audit: func() (int64, error) { return 0, nil },
	}
	health := &fakeHealth{}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_ready", Help: "1 while ready."}))
	policy := fakeNamespace.Policy
	view := View{Store: f, Health: health, Metrics: reg, Settings: map[string][]Setting{"default": {
		{"sink", "stdout:"}, {"capacity", policy.Capacity}, {"max_age", policy.MaxAge}, {"max_dead_bytes", policy.MaxDeadBytes},
	}}}
	a := New(Config{Listen: listen, Source: func() View { return view }}, zap.NewNop())
	return f, health, a.server.Handler
}

func ask(h http.Handler, method, path, host string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAdminRoutes(t *testing.T) {
	t.Parallel()
	const ledger = `{"namespace":"default","ledger":{"accepted":21,"delivered":6,"evicted":5,"expired":4,"dead":3,"lost":2,"buffered":1},"reclaimed":7,"purged":0,"partitions":9,"dead_letters":3,"dead_letters_evicted":8,"dead_letters_bytes":640,"overdue_ms":1500`
	const unpaused = `,"paused":null,"paused_partitions":0`
	tests := []struct {
		method, path string
		status       int
		body         string // its beginning
	}{
		{"GET", "/livez", 200, `{"status":"ok"}`},
		{"GET", "/readyz", 200, `{"status":"ok"}`},
		{"GET", "/metrics", 200, "# HELP spillway_"},
		{"GET", "/api/v1/namespaces", 200, `{"namespaces":[{"namespace":"default","kind":"buffer","sink":"stdout:","capacity":10000,"max_age_ms":180000,"max_dead_bytes":67108864}]}`},
		{"GET", "/api/v1/namespaces/default", 200, ledger + unpaused + `}`},
		{"GET", "/api/v1/namespaces/default?audit=0", 200, ledger + unpaused + `}`},
		{"GET", "/api/v1/namespaces/default?audit=1", 200, ledger + unpaused + `,"residual":0}`},
		{"GET", "/api/v1/namespaces/default?audit=often", 400, `{"error":"bad_parameter","message":"audit is 1 or 0"}`},
		{"GET", "/api/v1/namespaces/kart", 404, `{"error":"no_such_namespace","message":"there is no namespace \"kart\""}`},
		{"GET", "/debug/pprof/", 200, "<html>"},
		{"GET", "/debug/pprof/symbol", 200, "num_symbols"},
		{"GET", "/debug/pprof/cmdline", 404, `{"error":"no_such_route"`},
		{"GET", "/debug/pprof/profile?seconds=61", 400, `{"error":"bad_request","message":"seconds: want 1 to 60"}`},
		{"GET", "/debug/pprof/trace?seconds=NaN", 400, `{"error":"bad_request"`},
		{"GET", "/debug/pprof/heap?seconds=-1", 400, `{"error":"bad_request"`},
		{"GET", "/", 200, "<!doctype html>"},
		{"GET", "/nowhere", 404, `{"error":"no_such_route"`},
		{"GET", "/v1/default/x", 404, `{"error":"no_such_route"`},
		{"HEAD", "/livez", 200, ""},
		{"POST", "/livez", 405, `{"error":"method_not_allowed","message":"use GET"}`},
		{"DELETE", "/api/v1/namespaces/default", 405, `{"error":"method_not_allowed"`},
		{"POST", "/debug/pprof/symbol", 405, `{"error":"method_not_allowed"`},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			_, _, h := setup("127.0.0.1:8081")
			w := ask(h, tt.method, tt.path, "127.0.0.1:8081")
			if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.body) {
				t.Errorf("got %d %s\nwant %d %s", w.Code, w.Body, tt.status, tt.body)
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") {
				t.Errorf("got CSP %q", csp)
			}
			if tt.status >= 400 && w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("an error has Content-Type %s", w.Header().Get("Content-Type"))
			}
			if tt.status == 405 && w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("got Allow %q", w.Header().Get("Allow"))
			}
		})
	}
}

func TestAdminAnswers503WhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	f, health, h := setup("127.0.0.1:8081")
	f.audit = func() (int64, error) { return 0, partition.ErrUnavailable }
	if w := ask(h, "GET", "/api/v1/namespaces/default?audit=1", "localhost"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("audit: got %d %s", w.Code, w.Body)
	}
	f.overview = func() (partition.Overview, error) { return partition.Overview{}, partition.ErrUnavailable }
	if w := ask(h, "GET", "/api/v1/namespaces/default", "localhost"); w.Code != 503 || !strings.Contains(w.Body.String(), `"store_unavailable"`) {
		t.Errorf("overview: got %d %s", w.Code, w.Body)
	}
	health.warns = []string{"the key x holds a string"}
	if w := ask(h, "GET", "/readyz", "localhost"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"status":"ok","warnings":["the key x holds a string"]}` {
		t.Errorf("readyz with a warning: got %d %s", w.Code, w.Body)
	}
	health.warns = []string{"r:1: " + backend.MemoryFull + ", so"}
	if w := ask(h, "GET", "/readyz", "localhost"); w.Code != 200 || !strings.HasPrefix(w.Body.String(), `{"status":"ok","degraded":["store_full"],"warnings":[`) {
		t.Errorf("readyz of a full store: got %d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/api/v1/overview", "localhost"); !strings.Contains(w.Body.String(), `"degraded":["store_full"]`) {
		t.Errorf("overview of a full store: %s", w.Body)
	}
	health.err = errors.New("store unavailable: dial rejected")
	if w := ask(h, "GET", "/api/v1/overview", "localhost"); !strings.Contains(w.Body.String(), `"degraded":[]`) {
		t.Errorf("overview of a store that was full and is away: %s", w.Body)
	}
	if w := ask(h, "GET", "/readyz", "localhost"); w.Code != 503 || w.Body.String() != `{"error":"not_ready","message":"store unavailable: dial rejected"}` {
		t.Errorf("readyz: got %d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/livez", "localhost"); w.Code != 200 {
		t.Errorf("livez: got %d", w.Code)
	}
}

func TestAdminRejectsHostHeadersOfOtherNames(t *testing.T) {
	t.Parallel()
	const api = "/api/v1/namespaces"
	tests := []struct {
		listen, path, host string
		allowed            bool
	}{
		{"127.0.0.1:8081", api, "127.0.0.1:8081", true},
		{"127.0.0.1:8081", api, "localhost:9999", true}, // a forwarded port
		{"127.0.0.1:8081", api, "LOCALHOST", true},
		{"127.0.0.1:8081", api, "[::1]:8081", true},
		{"127.0.0.1:8081", api, "evil.example", false},
		{"127.0.0.1:8081", "/metrics", "evil.example", false},
		{"127.0.0.1:8081", api, "localhost.evil.example", false},
		{"127.0.0.1:8081", api, "127.0.0.1.evil.example:8081", false},
		{"127.0.0.1:8081", api, "10.0.0.5:8081", false},
		{"10.0.0.5:8081", api, "10.0.0.5:8081", true},
		{"10.0.0.5:8081", api, "evil.example", false},
		{"admin.corp:8081", api, "Admin.corp:8081", true},
		{"0.0.0.0:8081", api, "10.0.0.5:8081", true},
		{":8081", api, "[fd00::5]:8081", true},
		{":8081", api, "spillway:8081", false},
		{":8081", "/debug/pprof/", "spillway:8081", false},
		{":8081", "/metrics", "spillway:8081", true}, // Prometheus, by a service's name
		{":8081", "/readyz", "spillway:8081", true},
	}
	for _, tt := range tests {
		_, _, h := setup(tt.listen)
		want := 200
		if !tt.allowed {
			want = 403
		}
		if w := ask(h, "GET", tt.path, tt.host); w.Code != want {
			t.Errorf("%s%s on %s: got %d, want %d", tt.host, tt.path, tt.listen, w.Code, want)
		}
	}
}

func TestAdminRejectsWritesFromOtherOrigins(t *testing.T) {
	t.Parallel()
	_, _, h := setup("127.0.0.1:8081")
	for name, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
		r := httptest.NewRequest("POST", "http://127.0.0.1:8081/api/v1/namespaces", nil)
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 403 || !strings.Contains(w.Body.String(), `"cross_origin"`) {
			t.Errorf("%s: %s: got %d %s", name, value, w.Code, w.Body)
		}
	}
}

func TestPagesOfOtherOriginsStartNothing(t *testing.T) {
	t.Parallel()
	s := setupRoles(func(v *View) {
		v.Tokens = nil
		v.More = func(path string) http.Handler {
			if path != "/info" {
				return nil
			}
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		}
	})
	const ofPage, link = "Sec-Fetch-Site cross-site", "Sec-Fetch-Site cross-site Sec-Fetch-Mode navigate"
	for _, c := range []struct {
		path, headers string
		crossed       bool
	}{
		{"/debug/pprof/profile?seconds=x", ofPage, true},
		{"/debug/pprof/profile?seconds=x", link, true},
		{"/debug/pprof/heap", "Sec-Fetch-Site same-site", true},
		{"/debug/pprof/heap", "Origin http://evil.example", true},
		{"/api/v1/namespaces/default?audit=1", ofPage, true},
		{"/api/v1/namespaces/default?audit=1", link, true},
		{"/api/v1/namespaces/default?audit=1", "Origin null", true},
		{"/info", ofPage, true},
		{"/metrics", ofPage, true},
		{"/metrics", link, false},
		{"/", link, false},
		{"/debug/pprof/heap", "Sec-Fetch-Site none Sec-Fetch-Mode navigate", false},
		{"/api/v1/info", "Sec-Fetch-Site same-origin", false},
		{"/api/v1/info", "", false},
	} {
		w := send(s, "GET", c.path, "", "", strings.Fields(c.headers)...)
		if crossed := w.Code == 403 && strings.Contains(w.Body.String(), `"cross_origin"`); crossed != c.crossed {
			t.Errorf("%s, %s: got %d %.100s", c.path, c.headers, w.Code, w.Body)
		}
	}
}

func TestAdminClosesTheConnectionAfterABody(t *testing.T) {
	t.Parallel()
	_, _, h := setup("127.0.0.1:8081")
	for body, want := range map[string]string{"": "", "0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n": "close"} {
		r := httptest.NewRequest("POST", "http://127.0.0.1:8081/livez", strings.NewReader(body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("a body of %d bytes: got Connection %q, want %q", len(body), got, want)
		}
	}
}

func TestAuditsOfBuffersRunOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most, done atomic.Int64
		s := setupRoles(func(v *View) {
			v.Store = &fakeStore{overview: func() (partition.Overview, error) { return partition.Overview{}, nil }, audit: func() (int64, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Millisecond)
				running.Add(-1)
				done.Add(1)
				return 0, nil
			}}
		})
		var asked sync.WaitGroup
		for range 8 {
			asked.Go(func() { send(s, "GET", "/api/v1/namespaces/default?audit=1", "viewer", "") })
		}
		asked.Wait()
		if most.Load() != 1 || done.Load() == 0 {
			t.Errorf("%d audits at once, %d in all", most.Load(), done.Load())
		}
	})
}

func TestServerKeepsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component {
		return aliveServer{New(Config{Listen: "127.0.0.1:0", Source: func() View { return View{} }, Failed: func(err error) { t.Error(err) }}, zap.NewNop())}
	})
}

type aliveServer struct{ *Server }

func (s aliveServer) Alive(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address()+"/livez", nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("livez: %s", res.Status)
	}
	return nil
}

func TestTheConsoleWaitsForAnActToItsEnd(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("console/page/api.js")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)const actPatience = ([0-9_]+);.*AbortSignal\.timeout\(actPatience\)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("api.js sets no timeout for acts")
	}
	ms, err := strconv.Atoi(strings.ReplaceAll(string(found[1]), "_", ""))
	if patience := time.Duration(ms) * time.Millisecond; err != nil || patience <= actTimeout {
		t.Errorf("the console waits %v, an act takes up to %v", patience, actTimeout)
	}
}
