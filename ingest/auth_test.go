package ingest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

func hashOf(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// bearerHeader is the header of a request with a token.
func bearerHeader(token string) string { return "Authorization: Bearer " + token }

// withTokens gives "default" two tokens and "small" one; "open" has none.
func withTokens(store *fakeStore) func(*Config) {
	store.namespaces["open"] = &partition.Namespace{Name: "open", Policy: partition.DefaultPolicy()}
	return func(c *Config) {
		c.Tokens = map[string][]Token{
			"default": {{Hash: hashOf("first"), Name: "first"}, {Hash: hashOf("second"), Name: "second"}, {Hash: hashOf("both"), Name: "both"}},
			"small":   {{Hash: hashOf("small"), Name: "small"}, {Hash: hashOf("both"), Name: "both"}},
			"open":    nil,
		}
	}
}

func TestAClosedNamespaceAdmitsItsTokensOnly(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, func(c *Config) {
		c.Tokens = map[string][]Token{"small": {{Hash: hashOf("small"), Name: "small"}}}
		c.Closed = []string{"default", "small"}
	})
	for _, tt := range []struct {
		namespace, token string
		status           int
	}{
		{"default", "", 401}, {"default", "any", 401}, {"default", "small", 403}, {"small", "", 401}, {"small", "small", 200},
	} {
		var headers []string
		if tt.token != "" {
			headers = []string{bearerHeader(tt.token)}
		}
		if got := p.post("/v1/"+tt.namespace+"/kart", "{}", headers...).status; got != tt.status {
			t.Errorf("%s with the token %q: got %d, want %d", tt.namespace, tt.token, got, tt.status)
		}
	}
}

func TestATokenIsAdmittedToItsNamespaceOnly(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	const unauthorized, forbidden = "unauthorized", "forbidden"
	tests := []struct {
		name, namespace string
		headers         []string
		code            string // empty: 200
	}{
		{"its token", "default", []string{bearerHeader("first")}, ""},
		{"its other token", "default", []string{bearerHeader("second")}, ""},
		{"a token of two namespaces, in one", "default", []string{bearerHeader("both")}, ""},
		{"and in the other", "small", []string{bearerHeader("both")}, ""},
		{"scheme in another case", "default", []string{"Authorization: bEARER first"}, ""},
		{"spaces round it", "default", []string{"Authorization: Bearer   first "}, ""},
		{"open namespace", "open", nil, ""},
		{"open namespace, with a token", "open", []string{bearerHeader("unknown")}, ""},

		{"no header", "default", nil, unauthorized},
		{"an unknown token", "default", []string{bearerHeader("third")}, unauthorized},
		{"a beginning of it", "default", []string{bearerHeader("firs")}, unauthorized},
		{"more than it", "default", []string{bearerHeader("first1")}, unauthorized},
		{"another case", "default", []string{bearerHeader("First")}, unauthorized},
		{"its hash", "default", []string{bearerHeader("sha256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e")}, unauthorized},
		{"no token", "default", []string{"Authorization: Bearer"}, unauthorized},
		{"an empty one", "default", []string{"Authorization: Bearer "}, unauthorized},
		{"no scheme", "default", []string{"Authorization: first"}, unauthorized},
		{"another scheme", "default", []string{"Authorization: Basic Zmlyc3Q="}, unauthorized},
		{"7 KiB of it", "default", []string{bearerHeader(strings.Repeat("first", 1400))}, unauthorized},
		{"another header", "default", []string{"X-Api-Key: first", "Proxy-Authorization: Bearer first"}, unauthorized},

		{"another namespace's", "small", []string{bearerHeader("first")}, forbidden},
		{"another namespace's, the other way", "default", []string{bearerHeader("small")}, forbidden},
		{"a namespace that does not exist", "nobody", []string{bearerHeader("first")}, forbidden},
		{"a namespace that does not exist, without a token", "nobody", nil, unauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := map[string]int{"": 200, unauthorized: 401, forbidden: 403}[tt.code]
			partition := strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' {
					return r
				}
				return -1
			}, tt.name)
			path := "/v1/" + tt.namespace
			p.post(path+"/"+partition, "x", tt.headers...).expect(t, want, tt.code)
			p.post(path, `{"partition":"`+partition+`","data":1}`, append(tt.headers, asNDJSON)...).expect(t, want, tt.code)
			for _, entry := range store.entries(tt.namespace + "/" + partition) {
				if tt.code != "" {
					t.Errorf("stored %s", entry)
				}
			}
			if want == 200 {
				want, tt.code = 404, "no_such_partition"
			}
			p.do("GET", path+"/"+partition, "", tt.headers...).expect(t, want, tt.code)
		})
	}
}

func TestATokenInTheURLIsIgnored(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	for _, query := range []string{"?token=first", "?k=first", "?access_token=first", "?authorization=Bearer%20first"} {
		p.post("/v1/default/p"+query, "x").expect(t, 401, "unauthorized")
	}
	if r, _ := p.raw("POST http://first:first@x/v1/default/p HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"); r.status == 200 {
		t.Error("user information in the URL is accepted as a token")
	}
}

func TestAnUnauthenticatedRequestIsRejectedBeforeItsBodyIsSent(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	for header, code := range map[string]string{"": "unauthorized", bearerHeader("small") + "\r\n": "forbidden"} {
		r, closed := p.raw(request11("POST /v1/default/p", header+"Expect: 100-continue\r\nContent-Length: 5\r\n", ""))
		if r.body.Error != code || !closed {
			t.Errorf("%q: got %d %s, closed: %t", header, r.status, r.raw, closed)
		}
	}
	if n := p.metric("rejections_total", "unauthorized") + p.metric("rejections_total", "forbidden"); n != 2 {
		t.Errorf("%v rejections are counted, want 2", n)
	}
}

func TestTokensOfAnUnknownNamespaceAreAConfigurationError(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Tokens = map[string][]Token{"nobody": {{Hash: hashOf("x")}}}
	_, err := New(cfg, newFake(), prometheus.NewRegistry(), zap.NewNop())
	var field *partition.FieldError
	if !errors.As(err, &field) || field.Field != "tokens" {
		t.Errorf("got %v", err)
	}
}

func TestTheWholeHashIsCompared(t *testing.T) {
	t.Parallel()
	for _, at := range []int{8, 15, 31} { // behind the bytes that a token is looked up by
		near := hashOf("first")
		near[at] ^= 1
		p := listen(t, newFake(), func(c *Config) { c.Tokens = map[string][]Token{"default": {{Hash: near}}} })
		p.post("/v1/default/p", "x", bearerHeader("first")).expect(t, 401, "unauthorized")
	}
}

// FuzzBearer checks that a token is only what follows the scheme in exactly one
// header, whatever a client sends.
func FuzzBearer(f *testing.F) {
	for _, value := range []string{"Bearer x", "bearer  x ", "Bearer", "Basic eDp5", "Bearer x, Bearer y", "Bearer\tx", "x", "", "Bearer x\r\nX: y", "Bearer x\x00", "Bearer    x "} {
		f.Add(value, "")
	}
	f.Add("Bearer x", "Bearer y")
	f.Add("Bearer x", "Bearer x")
	f.Fuzz(func(t *testing.T, value, second string) {
		if strings.ContainsAny(value, "\r\n") {
			return // fasthttp never reads such a header; Add replaces the bytes with spaces
		}
		var h fasthttp.RequestHeader
		h.Add(fasthttp.HeaderAuthorization, value)
		if second != "" {
			h.Add(fasthttp.HeaderAuthorization, second)
		}
		got := string(bearer(&h))
		if got == "" {
			return
		}
		if second != "" || len(value) < 8 || !strings.EqualFold(value[:7], "Bearer ") || strings.Trim(value[7:], " ") != got {
			t.Fatalf("%q and %q give token %q", value, second, got)
		}
	})
}

var (
	absoluteForm  = regexp.MustCompile(`\A(?i:https?)://[^/?]*`)
	namespacePath = regexp.MustCompile(`\A/(v1|beacon)/[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	partitionPath = regexp.MustCompile(`\A/(v1|beacon)/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
)

// FuzzPath checks that each partition has one spelling: an accepted request target
// is, byte for byte, a path of the contract.
func FuzzPath(f *testing.F) {
	for _, target := range []string{
		"/v1/default/p", "/v1/default", "/v1/default/p?x=1", "/v1/default/p#f", "//v1/default/p", "/v1/default/%70",
		"/v1/../v1/default/p", "/v1/default/p/", "http://x/v1/default/p", "/v1/default/a}{p1}b", "*", "", "//x/v1/default/p", "ftp://x/v1/default/p", "HTTPS://x/v1/default",
	} {
		f.Add([]byte(target))
	}
	for _, seed := range pathSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetRequestURIBytes(raw)
		ctx.Request.Header.SetMethod(fasthttp.MethodPost)
		var to target
		if new(Server).match(&ctx, &to) != nil {
			return
		}
		path, _, _ := strings.Cut(string(raw), "?")
		if absolute := absoluteForm.FindString(path); absolute != "" {
			path = path[len(absolute):]
		}
		switch to.route.pattern {
		case patternPartition, patternBeaconPartition:
			if !partitionPath.MatchString(path) || !strings.HasSuffix(path, "/"+string(to.partition)) {
				t.Fatalf("%q is accepted for partition %q", raw, to.partition)
			}
		case patternNamespace, patternBeaconNamespace:
			if !namespacePath.MatchString(path) {
				t.Fatalf("%q is accepted for namespace %q", raw, to.path)
			}
		default:
			t.Fatalf("%q is accepted for a POST to %s", raw, to.route.pattern)
		}
	})
}

func TestOnlyTheCanonicalPathIsAccepted(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	long := strings.Repeat("p", 128)
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/default/p": {200, ""}, "/v1/default/" + long: {200, ""}, "/v1/default/A.b_c-9": {200, ""},
		"/v1/default/__proto__x": {400, "bad_partition"}, "/v1/default/p?x=1&y": {200, ""},

		"/v1/../admin": {400, "bad_request"}, "/v1/%2e%2e%2fadmin": {400, "bad_request"}, "//admin": {400, "bad_request"},
		"/v1/default/./p": {400, "bad_request"}, "/v1/default//p": {400, "bad_request"}, "/v1/default/..": {400, "bad_request"},
		"/v1/default/a%2Eb": {400, "bad_request"}, "/v1/default/p%00": {400, "bad_request"}, "/v1/default/p%0d%0a": {400, "bad_request"},
		"/v1/default/%257B": {400, "bad_request"}, "/v1/default/%7Bp%7D": {400, "bad_request"},
		"/v1/default/%zz": {400, "bad_partition"}, // not a %-escape, so it is part of the name

		"//x/v1/default/p": {400, "bad_request"}, "///v1/default/p": {400, "bad_request"}, "ftp://x/v1/default/p": {400, "bad_request"},
		"/v1/default/p#f": {400, "bad_request"}, "/v1/default/p?x#": {400, "bad_request"}, "http://x/v1/default/p#f": {400, "bad_request"},

		"/v1/default/": {400, "bad_partition"}, "/v1/default/" + long + "p": {400, "bad_partition"},
		"/v1/default/p/q": {400, "bad_partition"}, "/v1/default/-p": {400, "bad_partition"}, "/v1/default/.p": {400, "bad_partition"},
		"/v1/default/a}{p1}b": {400, "bad_partition"}, "/v1/default/{}": {400, "bad_partition"}, "/v1/default/*": {400, "bad_partition"},
		"/v1/default/a:b": {400, "bad_partition"}, "/v1/default/p\u202eq": {400, "bad_partition"}, "/v1/default/\u0440": {400, "bad_partition"},
		"/v1/": {400, "bad_namespace"}, "/v1/" + long + "/p": {400, "bad_namespace"}, "/v1/-d/p": {400, "bad_namespace"}, "/v1/d{}": {400, "bad_namespace"},
		"/v1/nobody/p": {404, "no_such_namespace"}, "/v1/Default/p": {404, "no_such_namespace"}, "/v1/nobody": {404, "no_such_namespace"},
		"/": {405, "method_not_allowed"}, "/v1": {404, "no_such_route"}, "/v2/default/p": {404, "no_such_route"}, "/metrics": {404, "no_such_route"},
		"/v1x/default/p": {404, "no_such_route"}, "/livez/": {404, "no_such_route"}, "/debug/pprof/": {404, "no_such_route"},
	} {
		r, _ := p.raw(request11("POST "+path, "Content-Length: 1\r\n", "x"))
		if r.status != want.status || r.body.Error != want.code {
			t.Errorf("%s: got %d %s, want %d %s", path, r.status, r.raw, want.status, want.code)
		}
		if strings.Contains(r.raw, "admin") || strings.ContainsAny(r.body.Message, "\x00\r\n") {
			t.Errorf("%s: the answer echoes the path: %s", path, r.raw)
		}
	}
	r, _ := p.raw(request11("POST http://x/v1/default/absolute", "Content-Length: 1\r\n", "x"))
	r.expect(t, 200, "")
}

func TestWrongMethodsAre405WithAllow(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for line, allow := range map[string]string{
		"PUT /v1/default/p": "POST, GET, HEAD, OPTIONS", "DELETE /v1/default/p": "POST, GET, HEAD, OPTIONS", "OPTIONS /livez": "GET, HEAD",
		"GET /v1/default": "POST, OPTIONS", "HEAD /v1/default": "POST, OPTIONS", "POST /livez": "GET, HEAD", "POST /readyz": "GET, HEAD",
		"TRACE /v1/default/p": "POST, GET, HEAD, OPTIONS", "CONNECT x:443": "GET, HEAD, OPTIONS, POST",
		"TRACE /nowhere": "GET, HEAD, OPTIONS, POST", "BREW /v1/../x": "GET, HEAD, OPTIONS, POST", "post /v1/default/p": "POST, GET, HEAD, OPTIONS",
	} {
		c, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, request11(line, "Content-Length: 0\r\n", ""))
		method, _, _ := strings.Cut(line, " ")
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != allow {
			t.Errorf("%s: got %d, Allow %q, want %q", line, resp.StatusCode, resp.Header.Get("Allow"), allow)
		}
		_ = c.Close()
	}
}
