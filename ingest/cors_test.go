package ingest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
)

const game = "https://game.example"

// withOrigins lists game for "default"; "open" allows every page and "small" none.
func withOrigins(store *fakeStore) func(*Config) {
	store.namespaces["open"] = &partition.Namespace{Name: "open", Policy: partition.DefaultPolicy()}
	return func(c *Config) {
		c.CORSOrigins = map[string][]string{"default": {game, "http://localhost:5173"}, "open": {AnyOrigin}, "small": nil}
	}
}

// preflightOf asks as a browser does, for a page of these origins.
func (p *port) preflightOf(path string, origins ...string) *reply {
	p.t.Helper()
	headers := []string{"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type"}
	for _, origin := range origins {
		headers = append(headers, "Origin: "+origin)
	}
	r := p.do(http.MethodOptions, path, "", headers...)
	if r.status != http.StatusNoContent || r.raw != "" {
		p.t.Errorf("%s for %v: got %d %q, want 204", path, origins, r.status, r.raw)
	}
	return r
}

func TestAPreflightAllowsListedOriginsOnly(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withOrigins(store))
	for _, row := range []struct{ path, origin, allowed, methods string }{
		{"/v1/default/p", game, game, "POST, GET, HEAD, OPTIONS"},
		{"/v1/default/p", "http://localhost:5173", "http://localhost:5173", "POST, GET, HEAD, OPTIONS"},
		{"/v1/default", game, game, "POST, OPTIONS"},
		{"/beacon/default/p", game, game, "POST, OPTIONS"},
		{"/beacon/default", game, game, "POST, OPTIONS"},
		{"/v1/open/p", "https://anywhere.example", "*", "POST, GET, HEAD, OPTIONS"},
		{"/beacon/open", "null", "*", "POST, OPTIONS"},
		{"/v1/default/.bad", game, game, "POST, GET, HEAD, OPTIONS"}, // the request itself is 400, and the page reads why
	} {
		r := p.preflightOf(row.path, row.origin)
		for header, want := range map[string]string{
			"Access-Control-Allow-Origin": row.allowed, "Access-Control-Allow-Methods": row.methods, "Allow": row.methods,
			"Access-Control-Allow-Headers": string(corsRequestHeaders), "Access-Control-Max-Age": "7200", "Vary": "Origin",
		} {
			if got := r.header.Get(header); got != want {
				t.Errorf("%s for %s: %s is %q, want %q", row.path, row.origin, header, got, want)
			}
		}
	}
	rejected := 0.0
	unknown := p.preflightOf("/v1/nobody/p", game).header
	rejected++
	for _, path := range []string{"/v1/default/p", "/v1/small/p", "/v1/default", "/beacon/default", "/v1/nobody", "/v1/-/p"} {
		for _, origin := range []string{
			"https://game.example.evil.example", "https://evilgame.example", "https://game.exampl", "http://game.example", "https://game.example:444",
			"https://game.example:443", "https://game.example/", "https://GAME.example", "https://sub.game.example", "null", "*", "https://game.example https://evil.example",
		} {
			r := p.preflightOf(path, origin)
			rejected++
			for header := range r.header {
				if strings.HasPrefix(header, "Access-Control-") {
					t.Errorf("%s for %s: the answer has %s: %q", path, origin, header, r.header.Get(header))
				}
			}
			if path == "/v1/small/p" && fmt.Sprint(len(r.header), r.header["Vary"], r.header["Allow"]) != fmt.Sprint(len(unknown), unknown["Vary"], unknown["Allow"]) {
				t.Errorf("the answer tells that there is a namespace: %v, and where there is none %v", r.header, unknown)
			}
		}
	}
	if r := p.preflightOf("/v1/default/p", game, game); r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("two Origin headers are allowed")
	}
	rejected++
	if got := p.metric("preflights_rejected_total"); got != rejected {
		t.Errorf("%v preflights are counted as rejected, want %v", got, rejected)
	}
	if got := p.metric("requests_total", "204", "preflight_mixed"); got == 0 {
		t.Error("preflights are not counted")
	}
}

func TestAPreflightNeedsNoToken(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, func(c *Config) {
		withTokens(store)(c)
		c.CORSOrigins = map[string][]string{"default": {game}}
	})
	if got := p.preflightOf("/v1/default/p", game).header.Get("Access-Control-Allow-Origin"); got != game {
		t.Errorf("got %q", got)
	}
	p.stopping.Store(true) // the request itself is answered 503, and the page reads it
	if got := p.preflightOf("/v1/default/p", game).header.Get("Access-Control-Allow-Origin"); got != game {
		t.Errorf("while it stops: got %q", got)
	}
}

func TestOPTIONSWithoutAPageListsTheMethods(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), nil)
	r := p.do(http.MethodOptions, "/v1/default/p", "")
	if r.status != 204 || r.header.Get("Allow") != "POST, GET, HEAD, OPTIONS" || r.header.Get("Vary") != "" {
		t.Errorf("got %d %v", r.status, r.header)
	}
	p.do(http.MethodOptions, "/nowhere", "").expect(t, 404, "no_such_route")
	p.do(http.MethodOptions, "/v1/default/p", strings.Repeat("x", p.cfg.MaxBody+1)).expect(t, 413, "body_too_large")
	if got := p.metric("preflights_rejected_total"); got != 0 {
		t.Errorf("%v are counted as rejected preflights", got)
	}
}

// Answers are readable whatever they say, so that a page learns of its mistakes.
func TestEveryAnswerIsReadableForAListedPage(t *testing.T) {
	t.Parallel()
	store := newFake()
	edit := func(c *Config) {
		withTokens(store)(c)
		c.CORSOrigins = map[string][]string{"default": {game}, "small": {game}, "open": {AnyOrigin}}
		c.Tokens["small"] = []Token{{Hash: hashOf("slow"), Name: "slow", Rate: Quota{1, time.Hour}}}
		c.MaxBody, c.MaxDecompressed, c.MaxEntries = 20<<10, 40<<10, 2
	}
	p, late := listenTCP(t, store, edit), listenTCP(t, store, func(c *Config) { edit(c); hasty(c) })
	first, fromGame := bearerHeader("first"), "Origin: "+game
	readable := func(name string, r *reply, status int, origin string) {
		t.Helper()
		if r.status != status {
			t.Errorf("%s: got %d %s, want %d", name, r.status, r.raw, status)
		}
		if got := r.header.Get("Access-Control-Allow-Origin"); got != origin {
			t.Errorf("%s: allowed for %q, want %q", name, got, origin)
		}
		want := ""
		if origin != "" {
			want = string(corsAnswerHeaders)
		}
		if got := r.header.Get("Access-Control-Expose-Headers"); got != want || r.header.Get("Vary") != "Origin" {
			t.Errorf("%s: exposed %q, Vary %q", name, got, r.header.Get("Vary"))
		}
	}
	readable("a 200", p.post("/v1/default/p", "x", first, fromGame), 200, game)
	readable("a 204", p.post("/v1/default/p", "x", first, fromGame, "Prefer: return=minimal"), 204, game)
	readable("mixed", p.post("/v1/default", `{"partition":"p","data":1}`, first, fromGame, asNDJSON), 200, game)
	readable("stats", p.do("GET", "/v1/default/p", "", first, fromGame), 404, game)
	readable("any page", p.post("/v1/open/p", "x", "Origin: null"), 200, "*")
	readable("400", p.post("/v1/default/p", "", first, fromGame), 400, game)
	readable("a bad name", p.post("/v1/default/.p", "x", first, fromGame), 400, game)
	readable("401", p.post("/v1/default/p", "x", fromGame), 401, game)
	readable("403", p.post("/v1/small/p", "x", first, fromGame), 403, game)
	readable("405", p.do("PUT", "/v1/default/p", "x", first, fromGame), 405, game)
	readable("413", p.post("/v1/default/p", strings.Repeat("x", 21<<10), first, fromGame), 413, game)
	readable("413 of entries", p.post("/v1/default/p", "1\n2\n3", asNDJSON, first, fromGame), 413, game)
	readable("415", p.post("/v1/default/p", "x", "Content-Encoding: br", first, fromGame), 415, game)
	slow := bearerHeader("slow")
	limited := p.post("/v1/small/p", "1\n2", asNDJSON, slow, fromGame)
	for limited.status == 200 {
		limited = p.post("/v1/small/p", "1\n2", asNDJSON, slow, fromGame)
	}
	readable("429", limited, 429, game)
	r, _ := late.raw(request11("POST /v1/default/p", fromGame+"\r\n"+first+"\r\nContent-Length: 10000\r\n", strings.Repeat("x", 9000)))
	readable("408", r, 408, game)
	r, _ = p.raw(request11("POST /v1/default/p", fromGame+"\r\nExpect: 100-continue\r\nContent-Length: 1\r\n", ""))
	readable("401 before the body", r, 401, game)
	produce := store.produce
	store.produce = failWith(partition.ErrUnknown)
	readable("503", p.post("/v1/default/p", "x", first, fromGame), 503, game)
	store.produce = produce
	now := store.now
	store.now = func() (int64, bool) { panic("a bug") }
	readable("500", p.post("/v1/default/p", "x", first, fromGame), 500, game)
	store.now = now

	readable("another page", p.post("/v1/default/p", "x", first, "Origin: https://evil.example"), 200, "")
	readable("no page", p.post("/v1/default/p", "x", first), 200, "")
	readable("no such namespace", p.post("/v1/nobody/p", "x", first, fromGame), 403, "")
	p.stopping.Store(true)
	readable("stopping", p.post("/v1/default/p", "x", first, fromGame), 503, game)
}

// withPagesOfSDKs has the namespaces default (key "wk") for game, small (key "small-key")
// for no page, and open, which pages of elsewhere may read but no key opens.
func withPagesOfSDKs(store *fakeStore) func(*Config) {
	store.namespaces["open"] = &partition.Namespace{Name: "open", Policy: partition.DefaultPolicy()}
	return func(c *Config) {
		withSDKs(c)
		c.CORSOrigins = map[string][]string{"default": {game}, "open": {"https://elsewhere.example"}}
	}
}

func TestAPreflightOfAnSDKAllowsOriginsOfNamespacesThatKeysOpen(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withPagesOfSDKs(store))
	paths := []string{
		"/segment/v1/batch", "/segment/v1/t", "/segment/v1/p", "/posthog/batch/", "/posthog/e", "/posthog/i/v0/e/", "/amplitude/2/httpapi", "/amplitude/batch",
	}
	rejected := 0.0
	for _, path := range paths {
		h := p.preflightOf(path, game).header
		for header, want := range map[string]string{
			"Access-Control-Allow-Origin": game, "Access-Control-Allow-Methods": "POST, OPTIONS", "Allow": "POST, OPTIONS",
			"Access-Control-Allow-Headers": "Authorization, *", "Access-Control-Allow-Credentials": "", "Vary": "Origin",
		} {
			if got := h.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", path, header, got, want)
			}
		}
		for _, origin := range []string{"https://evil.example", "https://elsewhere.example", "null", "*"} {
			rejected++
			for header := range p.preflightOf(path, origin).header {
				if strings.HasPrefix(header, "Access-Control-") {
					t.Errorf("%s for %s: the answer has %s", path, origin, header)
				}
			}
		}
	}
	if got := p.metric("preflights_rejected_total"); got != rejected {
		t.Errorf("%v preflights are counted as rejected, want %v", got, rejected)
	}
}

func TestAPageReadsTheAnswerToItsSDKIfTheNamespaceOfItsKeyListsIt(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, withPagesOfSDKs(store)) // a body that is too large is not read to its end
	const (
		segment, posthog = "/segment/v1/t", "/posthog/e/"
		evil, elsewhere  = "https://evil.example", "https://elsewhere.example"
	)
	check := func(name, path, body string, status int, origin, allowed string, headers ...string) {
		t.Helper()
		r := p.post(path, body, append(headers, "Origin: "+origin)...)
		if got := r.header.Get("Access-Control-Allow-Origin"); r.status != status || got != allowed || r.header.Get("Vary") != "Origin" {
			t.Errorf("%s of %s: got %d %s, allowed for %q, Vary %q; want %d for %q", name, origin, r.status, r.raw, got, r.header.Get("Vary"), status, allowed)
		}
		if (r.header.Get("Access-Control-Expose-Headers") != "") != (allowed != "") || r.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", name, r.header)
		}
	}
	for _, row := range []struct {
		name, path, body string
		status           int
		pages            bool // game may read it
		header           string
	}{
		{"stored", segment, `{"writeKey":"wk"}`, 200, true, ""},
		{"stored by a header", segment, `{}`, 200, true, basic("wk:")},
		{"stored", posthog, `{"api_key":"wk"}`, 200, true, ""},
		{"stored", "/amplitude/2/httpapi", `{"api_key":"wk","events":[{}]}`, 200, true, ""},
		{"bad events", "/amplitude/2/httpapi", `{"api_key":"wk","events":[7]}`, 400, true, ""},
		{"a bad body", segment, `{"batch":`, 400, true, basic("wk:")},
		{"a key that is not known yet", segment, `{"batch":`, 400, true, ""},
		{"an unknown key", segment, `{"writeKey":"nobody"}`, 401, true, ""},
		{"an unknown key in a header", segment, `{}`, 401, true, basic("nobody:")},
		{"an unknown call", "/posthog/flags/", `{}`, 404, true, ""},
		{"a wrong encoding", posthog, `{}`, 415, true, "Content-Encoding: br"},
		{"too large", posthog, strings.Repeat("x", p.cfg.MaxBody+1), 413, true, ""},
		{"another namespace", segment, `{"writeKey":"small-key"}`, 200, false, ""},
		{"another namespace by a header", segment, `{}`, 200, false, basic("small-key:")},
		{"a bad body for another namespace", segment, `{"batch":`, 400, false, basic("small-key:")},
		{"no events for another namespace", "/segment/v1/batch", `{"writeKey":"small-key","batch":[]}`, 400, false, ""},
	} {
		var headers []string
		if row.header != "" {
			headers = []string{row.header}
		}
		allowed := ""
		if row.pages {
			allowed = game
		}
		check(row.name, row.path, row.body, row.status, game, allowed, headers...)
		check(row.name, row.path, row.body, row.status, evil, "", headers...)
		check(row.name, row.path, row.body, row.status, elsewhere, "", headers...)
	}
	produce, now := store.produce, store.now
	store.produce = failWith(partition.ErrUnavailable)
	check("the store is away", segment, `{"writeKey":"wk"}`, 503, game, game)
	check("the store is away", segment, `{"writeKey":"small-key"}`, 503, game, "")
	store.produce = produce
	store.now = func() (int64, bool) { panic("a bug") }
	check("a panic", segment, `{"writeKey":"wk"}`, 500, game, game)
	check("a panic", segment, `{"writeKey":"wk"}`, 500, evil, "")
	store.now = now
	p.stopping.Store(true)
	check("stopping", segment, `{"writeKey":"wk"}`, 503, game, game)
}

// In the demo the name of a namespace is its key.
func TestPagesOfNamespacesThatAreTheirOwnKeysCount(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, func(c *Config) {
		withTokens(store)(c)
		c.NamespaceKeys, c.SDKs = true, map[string]SDK{"default": {}, "small": {}}
		delete(c.Tokens, "small")
		c.CORSOrigins = map[string][]string{"small": {AnyOrigin}, "default": {game}} // default has tokens, so no key opens it
	})
	if got := p.preflightOf("/posthog/e/", "https://any.example").header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("allowed for %q", got)
	}
	r := p.post("/posthog/e/", `{"api_key":"small"}`, "Origin: https://any.example")
	if got := r.header.Get("Access-Control-Allow-Origin"); r.status != 200 || got != "*" {
		t.Errorf("got %d %s, allowed for %q", r.status, r.raw, got)
	}
}

func TestPagesOfNamespacesThatNoKeyOpensReadNoAnswerToAnSDK(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.CORSOrigins = map[string][]string{"default": {AnyOrigin}} })
	if got := p.preflightOf("/posthog/e/", game).header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("a preflight is allowed for %q", got)
	}
	r := p.post("/posthog/e/", `{"api_key":"default"}`, "Origin: "+game)
	if got := r.header.Get("Access-Control-Allow-Origin"); r.status != 401 || got != "" {
		t.Errorf("got %d %s, allowed for %q", r.status, r.raw, got)
	}
}

func TestABeaconMayBringCookies(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withOrigins(store))
	for path, want := range map[string]string{"/beacon/default/p": "true", "/beacon/default": "true", "/v1/default/p": "", "/beacon/open/p": ""} {
		for _, r := range []*reply{p.preflightOf(path, game), p.post(path, `[1]`, asJSON, "Origin: "+game)} {
			if got := r.header.Get("Access-Control-Allow-Credentials"); got != want {
				t.Errorf("%s: Access-Control-Allow-Credentials %q, want %q", path, got, want)
			}
			if r.header.Get("Access-Control-Allow-Origin") == "" {
				t.Errorf("%s: no origin is allowed", path)
			}
		}
	}
}

func TestPagesMaySendEveryHeaderThatIsRead(t *testing.T) {
	t.Parallel()
	allowed := strings.Split(string(corsRequestHeaders), ", ")
	for _, header := range append(slices.Clone(transport.SingletonHeaders), "Prefer") {
		if !slices.Contains(allowed, header) {
			t.Errorf("%s is not among %v", header, allowed)
		}
	}
}

func TestUnusableOriginsSayWhatToWrite(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"*", game, "http://localhost:5173", "http://127.0.0.1:8000", "http://[::1]:3000", "https://xn--bcher-kva.example", "capacitor://localhost",
		"chrome-extension://abcdefghijklmnop", "https://game.example:8443", "http://game.example:443",
	} {
		if err := CheckOrigin(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for text, want := range map[string]string{
		"https://game.example/":         `write "https://game.example"`,
		"https://game.example/play?x=1": `write "https://game.example"`,
		"HTTPS://Game.Example":          `write "https://game.example"`,
		"https://game.example:443":      `write "https://game.example"`,
		"http://game.example:80/":       `write "http://game.example"`,
		"https://u:p@game.example":      `write "https://game.example"`,
		"https://*.game.example":        `list each origin, or write "*" alone`,
		"*.example":                     `list each origin, or write "*" alone`,
		"null":                          `write "*" to allow every page`,
		"game.example":                  "write scheme://host or scheme://host:port",
		"game.example:8080":             "write scheme://host or scheme://host:port",
		"https://bücher.example":        "write scheme://host or scheme://host:port",
		"https://":                      "write scheme://host or scheme://host:port",
		"https://game.example:":         "write scheme://host or scheme://host:port",
		"https://game.example:0":        "write scheme://host or scheme://host:port",
		"https://a,https://b":           "write scheme://host or scheme://host:port",
		"":                              "write scheme://host or scheme://host:port",
		"https://a\r\nX: y":             "write scheme://host or scheme://host:port",
	} {
		err := CheckOrigin(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want … %s", text, err, want)
		}
	}
	for want, origins := range map[string]map[string][]string{
		"a namespace that the store has": {"nobody": {game}},
		`"*" alone`:                      {"default": {AnyOrigin, game}},
		"list each origin":               {"default": {"https://*"}},
	} {
		cfg := DefaultConfig()
		cfg.CORSOrigins = origins
		if _, err := New(cfg, newFake(), prometheus.NewRegistry(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want … %s", origins, err, want)
		}
	}
}

// pageCases are what browsers send for pages, and whether a namespace without tokens takes it. It
// lists game.
var pageCases = []struct {
	name, host, headers string
	code                string // empty: it is taken
}{
	{"a program", "data", "", ""},
	{"a program by its address", "127.0.0.1:8080", "", ""},
	{"a program over a tunnel", "10.0.0.7:8080", "", ""},
	{"a program in a network of containers", "spillway:8080", "", ""},
	{"a listed page", "127.0.0.1:8080", "Origin: " + game + "\r\nSec-Fetch-Site: cross-site\r\n", ""},
	{"a listed page through a proxy", "events.example", "Origin: " + game + "\r\n", ""},
	{"a page of a proxy's own origin", "localhost:5173", "Origin: http://localhost:5173\r\nSec-Fetch-Site: same-origin\r\n", ""},
	{"the same, of an old browser", "localhost:5173", "Origin: http://localhost:5173\r\n", ""},
	{"a typed address", "127.0.0.1:8080", "Sec-Fetch-Site: none\r\n", ""},
	{"another page", "127.0.0.1:8080", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n", "cross_origin"},
	{"another page of an old browser", "127.0.0.1:8080", "Origin: https://evil.example\r\n", "cross_origin"},
	{"another port", "127.0.0.1:8080", "Origin: http://127.0.0.1:3000\r\nSec-Fetch-Site: same-site\r\n", "cross_origin"},
	{"a file", "127.0.0.1:8080", "Origin: null\r\nSec-Fetch-Site: cross-site\r\n", "cross_origin"},
	{"an image", "127.0.0.1:8080", "Sec-Fetch-Site: cross-site\r\n", "cross_origin"},
	{"a name that was re-pointed", "evil.example:8080", "", "bad_host"},
	{"a page under such a name", "evil.example:8080", "Origin: http://evil.example:8080\r\n", "bad_host"},
	{"a name that begins like ours", "127.0.0.1.evil.example", "", "bad_host"},
	{"localhost as a subdomain", "localhost.evil.example", "", "bad_host"},
	{"a name with a dot at its end", "evil.example.", "", "bad_host"},
}

func TestAPageReachesANamespaceWithoutTokensOnlyFromAListedOrigin(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listenTCP(t, store, func(c *Config) {
		withTokens(store)(c)
		delete(c.Tokens, "default")
		c.CORSOrigins = map[string][]string{"default": {game}}
	})
	ask := func(line, host, headers, body string) *reply {
		r, _ := p.raw(fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", line, host, headers, len(body), body))
		return r
	}
	for _, c := range pageCases {
		for method, body := range map[string]string{"POST": "x", "GET": ""} {
			r := ask(method+" /v1/default/p", c.host, c.headers, body)
			if (r.status == 403) != (c.code != "") || c.code != "" && r.body.Error != c.code {
				t.Errorf("%s of %s: got %d %s, want %q", method, c.name, r.status, r.raw, c.code)
			}
		}
		if r := ask("POST /v1/small/p", c.host, c.headers+bearerHeader("small")+"\r\n", "x"); r.status != 200 {
			t.Errorf("%s with a token: got %d %s", c.name, r.status, r.raw)
		}
		rejected := func() float64 {
			return p.metric("rejections_total", "bad_host") + p.metric("rejections_total", "cross_origin")
		}
		before := rejected()
		_ = ask("POST /beacon/default/b", c.host, c.headers, "x")
		if taken := rejected() == before; taken != (c.code != "bad_host") {
			t.Errorf("a beacon of %s is taken: %v", c.name, taken)
		}
	}
}

func TestAnSDKWhoseKeyIsANameIsNotSpokenForByEveryPage(t *testing.T) {
	t.Parallel()
	store := newFake()
	for keys, want := range map[string]int{"": 403, "wk": 200} {
		p := listen(t, store, func(c *Config) {
			c.NamespaceKeys, c.SDKs = true, map[string]SDK{"default": {}}
			if keys != "" {
				c.SDKs["default"] = SDK{WriteKeys: []WriteKey{{Key: keys}}}
			}
		})
		body := `{"api_key":"` + cmp.Or(keys, "default") + `","event":"e","distinct_id":"x"}`
		if r := p.post("/posthog/e/", body, "Origin: https://evil.example"); r.status != want {
			t.Errorf("write keys %q: a page gets %d %s", keys, r.status, r.raw)
		}
		if r := p.post("/posthog/e/", body); r.status != 200 {
			t.Errorf("write keys %q: a program gets %d %s", keys, r.status, r.raw)
		}
	}
}

func TestTheLogNamesOriginsThatAreNotListedAFewTimes(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	store := newFake()
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, store, withOrigins(store), ln, ln.Dial, zap.New(core))
	p.preflightOf("/v1/nobody/p", "https://new.example")
	p.preflightOf("/v1/default/p", "https://new.example")
	p.post("/v1/small/p", "x", "Origin: https://new.example")
	p.post("/v1/small/p", "x", "Origin: https://\u202eevil.example")
	lines := logs.All()
	if len(lines) != 3 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, want := range []string{"default https://new.example", "small https://new.example", "small none, or not one that can be listed"} {
		m := lines[i].ContextMap()
		if got := fmt.Sprint(m["namespace"], " ", m["origin"]); got != want || !strings.Contains(fmt.Sprint(m["hint"]), "cors_origins") {
			t.Errorf("line %d: got %s, hint %q", i, got, m["hint"])
		}
	}
	for range 100 {
		p.post("/v1/small/p", "x", "Origin: https://new.example")
	}
	if n := logs.Len(); n != 5 {
		t.Errorf("%d lines in a minute", n)
	}
}
