package ingest

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

var (
	absoluteForm  = regexp.MustCompile(`\A(?i:https?)://[^/?]*`)
	namespacePath = regexp.MustCompile(`\A/(v1|beacon)/[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	partitionPath = regexp.MustCompile(`\A/(v1|beacon)/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
)

// FuzzPath checks that each partition has one spelling: an accepted request target
// is, byte for byte, a path of the contract.
func FuzzPath(f *testing.F) {
	for _, target := range []string{
		"/v1/default/p", "/v1/default", "/v1/default/p?ack=none", "/v1/default/p#f", "//v1/default/p", "/v1/default/%70",
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
		if to.match(&ctx) != nil {
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
		"/": {404, "no_such_route"}, "/v1": {404, "no_such_route"}, "/v2/default/p": {404, "no_such_route"}, "/metrics": {404, "no_such_route"},
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
