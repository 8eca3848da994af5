package ingest

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// route is one row of the table: what a method does at a path.
type route struct {
	name    string // in metrics
	method  string // a GET also answers HEAD
	pattern string
	door    door
}

// noRoute is the row of requests without one.
var noRoute = route{name: "none", door: events(nil)}

const (
	patternNamespace = "/v1/{namespace}"
	patternPartition = "/v1/{namespace}/{partition}"

	patternBeaconNamespace = "/beacon/{namespace}"
	patternBeaconPartition = "/beacon/{namespace}/{partition}"
)

// routes is everything the data port answers. A mixed request is a produce
// request whose items name their partition.
var routes = append(sdkRoutes(), []route{
	{"produce", fasthttp.MethodPost, patternPartition, events((*Server).produce)},
	{"mixed", fasthttp.MethodPost, patternNamespace, events((*Server).produce)},
	{"beacon", fasthttp.MethodPost, patternBeaconPartition, beacons{(*Server).beacon}},
	{"beacon_mixed", fasthttp.MethodPost, patternBeaconNamespace, beacons{(*Server).beacon}},
	{"stats", fasthttp.MethodGet, patternPartition, events((*Server).stats)},
	{"preflight", fasthttp.MethodOptions, patternPartition, events((*Server).preflight)},
	{"preflight_mixed", fasthttp.MethodOptions, patternNamespace, events((*Server).preflight)},
	{"preflight_beacon", fasthttp.MethodOptions, patternBeaconPartition, beacons{(*Server).preflight}},
	{"preflight_beacon_mixed", fasthttp.MethodOptions, patternBeaconNamespace, beacons{(*Server).preflight}},
	{"index", fasthttp.MethodGet, "/", events((*Server).index)},
	{"livez", fasthttp.MethodGet, "/livez", events((*Server).livez)},
	{"readyz", fasthttp.MethodGet, "/readyz", events((*Server).readyz)},
	{"openapi", fasthttp.MethodGet, "/openapi.yaml", events((*Server).openapi)},
}...)

// target is what a request is about. Its slices are fasthttp's memory: copy
// what must outlive the handler.
type target struct {
	route     *route
	door      door
	namespace *partition.Namespace
	key       *key     // of the token; nil where the namespace has no tokens
	path      []byte   // "namespace/partition" or "namespace"; of an SDK all, with the / before it
	partition []byte   // empty for a mixed request
	call      string   // of an SDK: what follows its prefix
	methods   string   // of the path, with commas; of a preflight only
	length    int      // announced, in bytes; below 0: the body comes in chunks, or there is none
	maxBody   int      // that it may have, in bytes as it is sent
	skipBody  bool     // a body was announced and is not read
	listed    *origins // whose pages may read the answer; nil: none
	cookies   bool     // pages send it with their cookies, which mean nothing here
}

// newTarget is a target without a route, of targets.
func (s *Server) newTarget() *target {
	t := s.targets.Get().(*target)
	*t = target{maxBody: s.cfg.MaxBody}
	t.take(&noRoute)
	return t
}

// take has the request go through the door of a row.
func (t *target) take(r *route) { t.route, t.door = r, r.door }

// name is that of the namespace in the path; empty: it names none.
func (t *target) name() []byte {
	name, _, _ := bytes.Cut(t.path, []byte{'/'})
	return name
}

// findRoute checks the framing of a request, and finds its route by method and
// path. It needs no body.
func (s *Server) findRoute(ctx *fasthttp.RequestCtx, t *target) *rejection {
	h := &ctx.Request.Header
	t.length, t.skipBody = transport.BodyLength(h)
	if rejected := transport.CheckFraming(h); rejected != nil {
		return rejected
	}
	if len(s.mounts) > 0 {
		if rejected, found := s.matchMount(ctx, t); found {
			return rejected
		}
	}
	return s.match(ctx, t)
}

// match finds the route of a request by its method and target.
func (s *Server) match(ctx *fasthttp.RequestCtx, t *target) *rejection {
	uri := ctx.URI()
	pattern, rejected := s.parsePath(t, uri.Path(), uri.PathOriginal())
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
func (s *Server) parsePath(t *target, path, original []byte) (pattern string, rejected *rejection) {
	if !bytes.Equal(path, original) {
		return "", rejectf(wire.CodeBadRequest, "the path must not hold %%-escapes, //, /./ or /../")
	}
	if p, call, pattern := sdkOf(path); p != nil { // an unknown call is 404 in the protocol's form
		t.door, t.path, t.call, t.listed = p, path, call, s.sdkOrigins
		return pattern, nil
	}
	ofNamespace, ofPartition := patternNamespace, patternPartition
	rest, found := bytes.CutPrefix(path, []byte("/v1/"))
	if !found {
		ofNamespace, ofPartition = patternBeaconNamespace, patternBeaconPartition
		rest, found = bytes.CutPrefix(path, []byte("/beacon/"))
		t.cookies = found
	}
	if !found {
		return textOf(path), nil
	}
	t.path = rest
	namespace, name, hasPartition := bytes.Cut(rest, []byte{'/'})
	t.listed = s.origins[string(namespace)]
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
	case "_times", "_owners", "_schedules":
		word = first
	}
	switch string(word) {
	case "claim", "take", "settle", "peek", "forecast", "dead", "jobs", "schedules", "_times", "_owners", "_schedules":
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
		t.take(r)
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
