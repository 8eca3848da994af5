package ingest

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// route is one row of the table: what a method does at a path.
type route struct {
	name    string // in metrics
	method  string // a GET also answers HEAD
	pattern string
	serve   func(*Server, *fasthttp.RequestCtx, target) *rejection
}

const (
	patternNamespace = "/v1/{namespace}"
	patternPartition = "/v1/{namespace}/{partition}"
)

// routes is everything the data port answers.
var routes = []route{
	{"produce", fasthttp.MethodPost, patternPartition, (*Server).produce},
	{"mixed", fasthttp.MethodPost, patternNamespace, (*Server).mixed},
	{"stats", fasthttp.MethodGet, patternPartition, (*Server).stats},
	{"livez", fasthttp.MethodGet, "/livez", (*Server).livez},
	{"readyz", fasthttp.MethodGet, "/readyz", (*Server).readyz},
}

// target is what a request is about. Its slices are fasthttp's memory: copy
// what must outlive the handler.
type target struct {
	route     *route
	namespace *partition.Namespace
	key       *key   // of the token; nil where the namespace is open
	path      []byte // "namespace/partition" or "namespace"
	partition []byte
	skipBody  bool // a body was announced, and nobody will read it
}

// admit judges everything that needs no body, from the outside in: framing,
// method, path, then whose namespace it is and who asks. A client that asks with
// Expect: 100-continue is rejected here before it sends anything.
func (s *Server) admit(ctx *fasthttp.RequestCtx, t *target) (rejected *rejection) {
	var length int
	length, t.skipBody = bodyLength(&ctx.Request.Header)
	if tooManyHeaders(&ctx.Request.Header) {
		return &rejection{code: wire.CodeHeadersTooLarge, close: true}
	}
	if rejected = checkFraming(&ctx.Request.Header); rejected != nil {
		return rejected
	}
	if rejected := t.match(ctx); rejected != nil {
		return rejected
	}
	if length > s.cfg.MaxBody {
		return s.bodyTooLarge()
	}
	switch {
	case s.stopping.Load() && t.route.pattern != "/livez":
		return reject(wire.CodeShuttingDown)
	case len(t.path) == 0:
		return nil
	}
	name, _, _ := bytes.Cut(t.path, []byte{'/'})
	// The name is only looked up, so it need not be copied.
	t.namespace = s.store.Namespace(unsafe.String(unsafe.SliceData(name), len(name)))
	if t.key, rejected = s.keyring.check(t.namespace, &ctx.Request.Header); rejected == nil && t.skipBody {
		return reject(wire.CodeOverloaded)
	}
	return rejected
}

// single are the headers that say one thing. Of two, a proxy may have judged
// the other than we would take.
var single = []string{
	"Authorization", "Content-Encoding", "Content-Type",
	"Idempotency-Key", "X-Client-Discards", "X-Event-Ts", "X-Sent-At",
}

// checkFraming rejects what two HTTP implementations might read as different
// requests. fasthttp lets these through: both lengths at once (it serves the
// rest as a second request), an identity transfer coding, folded headers and
// bare line feeds, any version that looks like HTTP/d.d, and headers that are
// repeated.
func checkFraming(h *fasthttp.RequestHeader) *rejection {
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return &rejection{code: wire.CodeVersionUnsupported, close: true}
	}
	bad := func(message string) *rejection {
		return &rejection{code: wire.CodeBadRequest, message: message, close: true}
	}
	hasLength, hasCoding := false, false
	seen, repeated := 0, -1 // of single: a bit each, and which one
	for rest := h.RawHeaders(); len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 1 || rest[end-1] != '\r' {
			return bad("header lines end in CR LF")
		}
		line := rest[:end-1]
		rest = rest[end+1:]
		if len(line) == 0 {
			break
		}
		switch line[0] {
		case 'a', 'A', 'c', 'C', 'i', 'I', 'x', 'X':
			for i, header := range single {
				if isHeader(line, header) {
					if seen&(1<<i) != 0 {
						repeated = i
					}
					seen |= 1 << i
				}
			}
		}
		switch line[0] {
		case ' ', '\t':
			return bad("a header must not continue on the next line")
		case 'c', 'C':
			hasLength = hasLength || isHeader(line, "Content-Length")
		case 't', 'T':
			if isHeader(line, "Transfer-Encoding") {
				hasCoding = true
				coding := bytes.Trim(line[len("Transfer-Encoding:"):], " \t")
				if !bytes.EqualFold(coding, []byte("chunked")) {
					return bad("the only Transfer-Encoding is chunked")
				}
			}
		}
	}
	if hasLength && hasCoding {
		return bad("send either Content-Length or Transfer-Encoding")
	}
	if repeated >= 0 {
		return rejectf(wire.CodeBadHeader, "%s is given twice: send it once", single[repeated])
	}
	return nil
}

// names reports whether a header line is of that header.
func isHeader(line []byte, header string) bool {
	return len(line) > len(header) && line[len(header)] == ':' &&
		strings.EqualFold(unsafe.String(unsafe.SliceData(line), len(header)), header)
}

// choose finds the route of a request by its method and target.
func (t *target) match(ctx *fasthttp.RequestCtx) *rejection {
	uri := ctx.URI()
	pattern, rejected := t.parsePath(uri.Path(), uri.PathOriginal())
	if rejected == nil && !validTarget(ctx.RequestURI()) {
		rejected = rejectf(wire.CodeBadRequest, "the request target is a path that begins with one slash, and has no #fragment")
	}
	return t.matchRoute(pattern, ctx.Method(), rejected)
}

// validTarget reports whether a request target is one that HTTP knows: a path,
// or a whole http URL as sent to proxies. fasthttp also takes //host/path and
// any other scheme, and cuts off a fragment: to a guard before us, another path.
func validTarget(raw []byte) bool {
	if bytes.IndexByte(raw, '#') >= 0 {
		return false
	}
	if len(raw) > 0 && raw[0] == '/' {
		return len(raw) == 1 || raw[1] != '/'
	}
	scheme, _, found := bytes.Cut(raw, []byte("://"))
	return found && (bytes.EqualFold(scheme, []byte("http")) || bytes.EqualFold(scheme, []byte("https")))
}

// parsePath finds the pattern of a path and its names. Only the canonical
// spelling is taken: fasthttp decodes %2e%2e and resolves //, and what two
// programs spell differently they may also guard differently.
func (t *target) parsePath(path, original []byte) (pattern string, rejected *rejection) {
	if !bytes.Equal(path, original) {
		return "", rejectf(wire.CodeBadRequest, "the path must not hold %%-escapes, //, /./ or /../")
	}
	rest, isV1 := bytes.CutPrefix(path, []byte("/v1/"))
	if !isV1 {
		return unsafe.String(unsafe.SliceData(path), len(path)), nil
	}
	t.path = rest
	namespace, name, hasPartition := bytes.Cut(rest, []byte{'/'})
	switch {
	case !partition.ValidNamespace(namespace):
		rejected = reject(wire.CodeBadNamespace)
	case hasPartition && !partition.ValidPartition(name):
		rejected = reject(wire.CodeBadPartition)
	}
	if !hasPartition {
		return patternNamespace, rejected
	}
	t.partition = name
	return patternPartition, rejected
}

// matchRoute finds the row. A wrong method is reported before a wrong path: a
// scanner that sends TRACE learns what is allowed and nothing else.
func (t *target) matchRoute(pattern string, method []byte, rejected *rejection) *rejection {
	if string(method) == fasthttp.MethodHead {
		method = []byte(fasthttp.MethodGet)
	}
	var allow []string
	known := false
	for i := range routes {
		r := &routes[i]
		known = known || r.method == string(method)
		if r.pattern != pattern {
			continue
		}
		if r.method == string(method) {
			t.route = r
			return rejected
		}
		allow = append(allow, allowHeader(r.method))
	}
	switch {
	case !known && allow == nil:
		return &rejection{code: wire.CodeMethodNotAllowed, allow: "GET, HEAD, POST"}
	case allow != nil:
		return &rejection{code: wire.CodeMethodNotAllowed, allow: strings.Join(allow, ", ")}
	case rejected != nil:
		return rejected
	}
	return reject(wire.CodeNoSuchRoute)
}

func allowHeader(method string) string {
	if method == fasthttp.MethodGet {
		return "GET, HEAD"
	}
	return method
}
