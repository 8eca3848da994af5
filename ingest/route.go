package ingest

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/transport"
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

	patternBeaconNamespace = "/beacon/{namespace}"
	patternBeaconPartition = "/beacon/{namespace}/{partition}"
)

// routes is everything the data port answers. A mixed request is a produce
// request whose items name their partition.
var routes = append(sdkRoutes(), []route{
	{"produce", fasthttp.MethodPost, patternPartition, (*Server).produce},
	{"mixed", fasthttp.MethodPost, patternNamespace, (*Server).produce},
	{"beacon", fasthttp.MethodPost, patternBeaconPartition, (*Server).beacon},
	{"beacon_mixed", fasthttp.MethodPost, patternBeaconNamespace, (*Server).beacon},
	{"stats", fasthttp.MethodGet, patternPartition, (*Server).stats},
	{"preflight", fasthttp.MethodOptions, patternPartition, (*Server).preflight},
	{"preflight_mixed", fasthttp.MethodOptions, patternNamespace, (*Server).preflight},
	{"preflight_beacon", fasthttp.MethodOptions, patternBeaconPartition, (*Server).preflight},
	{"preflight_beacon_mixed", fasthttp.MethodOptions, patternBeaconNamespace, (*Server).preflight},
	{"index", fasthttp.MethodGet, "/", (*Server).index},
	{"livez", fasthttp.MethodGet, "/livez", (*Server).livez},
	{"readyz", fasthttp.MethodGet, "/readyz", (*Server).readyz},
	{"openapi", fasthttp.MethodGet, "/openapi.yaml", (*Server).openapi},
}...)

// target is what a request is about. Its slices are fasthttp's memory: copy
// what must outlive the handler.
type target struct {
	route     *route
	namespace *partition.Namespace
	key       *key   // of the token; nil where the namespace has no tokens
	path      []byte // "namespace/partition" or "namespace"
	partition []byte // empty for a mixed request
	methods   string // of the path, with commas; of a preflight only
	length    int    // announced, in bytes; below 0: the body comes in chunks, or there is none
	skipBody  bool   // a body was announced and is not read
	mount     *mount // of a path that a handler of another package serves

	adapter       protocol.Adapter // of a path below the prefix of an SDK
	call          string           // what follows that prefix
	segmentPrefix string           // of Segment's routes, beside /segment/v1/; empty: none
}

// findRoute checks the framing of a request, and finds its route by method and
// path. It needs no body.
func (s *Server) findRoute(ctx *fasthttp.RequestCtx, t *target) *rejection {
	h := &ctx.Request.Header
	t.segmentPrefix = s.segmentPrefix
	t.length, t.skipBody = transport.BodyLength(h)
	if rejected := transport.CheckFraming(h); rejected != nil {
		return rejected
	}
	if len(s.mounts) > 0 {
		if rejected, found := s.matchMount(ctx, t); found {
			return rejected
		}
	}
	return t.match(ctx)
}

// match finds the route of a request by its method and target.
func (t *target) match(ctx *fasthttp.RequestCtx) *rejection {
	uri := ctx.URI()
	pattern, rejected := t.parsePath(uri.Path(), uri.PathOriginal())
	if rejected == nil && !validTarget(ctx.RequestURI()) {
		rejected = rejectf(wire.CodeBadRequest,
			"the request target is a path that begins with one slash, and has no #fragment")
	}
	return t.matchRoute(pattern, ctx.Method(), rejected)
}

// validTarget reports whether a request target is a path, or a whole http URL
// as clients send it to proxies. fasthttp also takes //host/path and any other
// scheme, and cuts off a fragment. A proxy in front might read those as another
// path.
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

// parsePath finds the pattern of a path and its names. It takes only the
// canonical spelling. fasthttp decodes %2e%2e and resolves //, and a proxy in
// front might apply its rules to another spelling.
func (t *target) parsePath(path, original []byte) (pattern string, rejected *rejection) {
	if !bytes.Equal(path, original) {
		return "", rejectf(wire.CodeBadRequest, "the path must not hold %%-escapes, //, /./ or /../")
	}
	if pattern, found := t.parseSDKPath(path); found {
		return pattern, nil
	}
	ofNamespace, ofPartition := patternNamespace, patternPartition
	rest, found := bytes.CutPrefix(path, []byte("/v1/"))
	if !found {
		ofNamespace, ofPartition = patternBeaconNamespace, patternBeaconPartition
		rest, found = bytes.CutPrefix(path, []byte("/beacon/"))
	}
	if !found {
		return unsafe.String(unsafe.SliceData(path), len(path)), nil
	}
	t.path = rest
	namespace, name, hasPartition := bytes.Cut(rest, []byte{'/'})
	switch {
	case !partition.ValidNamespace(namespace):
		rejected = reject(wire.CodeBadNamespace)
	case hasPartition && !partition.ValidPartition(name):
		rejected = badPartition(namespace, name)
	}
	if !hasPartition {
		return ofNamespace, rejected
	}
	t.partition = name
	return ofPartition, rejected
}

// badPartition says why a path names no partition. The request is not authenticated yet, so
// it does not say whether the namespace exists.
func badPartition(namespace, name []byte) *rejection {
	first, below, _ := bytes.Cut(name, []byte{'/'})
	word, _, _ := bytes.Cut(below, []byte{'/'})
	switch string(first) {
	case "_times", "_owners":
		word = first
	}
	switch string(word) {
	case "claim", "take", "settle", "peek", "forecast", "dead", "jobs", "schedules", "_times", "_owners":
		return rejectf(wire.CodeBadPartition, "%s is a route of queues, and %s is a buffer or no namespace of this server: such a route needs "+
			"kind: queue", word, namespace)
	}
	return reject(wire.CodeBadPartition)
}

// matchRoute finds the row. It reports a wrong method before a wrong path: a
// scanner that sends TRACE learns which methods are allowed and nothing else.
func (t *target) matchRoute(pattern string, method []byte, rejected *rejection) *rejection {
	if string(method) == fasthttp.MethodHead {
		method = []byte(fasthttp.MethodGet)
	}
	known, exists := false, false
	for i := range routes {
		r := &routes[i]
		known = known || r.method == string(method)
		if r.pattern != pattern {
			continue
		}
		exists = true
		if r.method != string(method) {
			continue
		}
		t.route = r
		if r.method == fasthttp.MethodOptions {
			t.methods = allowedMethods(pattern)
			return nil // a page cannot read why a preflight fails; its request itself is rejected
		}
		return rejected
	}
	switch {
	case exists:
		return RejectMethod(allowedMethods(pattern))
	case !known:
		return RejectMethod("GET, HEAD, OPTIONS, POST")
	case rejected != nil:
		return rejected
	}
	return reject(wire.CodeNoSuchRoute)
}

// allowedMethods lists the methods of a path, as in an Allow header.
func allowedMethods(pattern string) string {
	var methods []string
	for i := range routes {
		if routes[i].pattern != pattern {
			continue
		}
		methods = append(methods, routes[i].method)
		if routes[i].method == fasthttp.MethodGet {
			methods = append(methods, fasthttp.MethodHead)
		}
	}
	return strings.Join(methods, ", ")
}
