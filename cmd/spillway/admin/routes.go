package admin

import (
	_ "embed"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin/console"
	"github.com/spillway-io/spillway/ingest/wire"
)

// A route is one method of one path. Each has either answer, whose result is sent as JSON,
// or serve. GET stands for HEAD, too. A POST takes JSON.
type route struct {
	method, path string
	role         Role // that it needs; probe: none
	answer       func(*request) (any, error)
	serve        func(http.ResponseWriter, *request)
}

// routes are all routes of the port, and who may use them.
func (s *Server) routes() []route {
	plain := func(h http.HandlerFunc) func(http.ResponseWriter, *request) {
		return func(w http.ResponseWriter, r *request) { h(w, r.Request) }
	}
	page := console.Handler()
	return []route{
		{"GET", "/livez", probe, func(*request) (any, error) { return map[string]string{"status": "ok"}, nil }, nil},
		{"GET", "/readyz", probe, s.readyz, nil},
		{"GET", "/metrics", Viewer, nil, plain(s.metrics.ServeHTTP)},
		{"GET", "/{$}", Viewer, nil, plain(page.ServeHTTP)},
		{"GET", "/console/", Viewer, nil, plain(page.ServeHTTP)},
		{"GET", "/api/v1/openapi.yaml", Viewer, nil, serveOpenAPI},
		{"GET", "/api/v1/info", Viewer, s.info, nil},
		{"GET", "/api/v1/overview", Viewer, s.overview, nil},
		{"GET", "/api/v1/history", Viewer, s.historyOf, nil},
		{"GET", "/api/v1/drops", Viewer, s.drops, nil},
		{"GET", "/api/v1/deliveries", Viewer, s.deliveries, nil},
		{"GET", "/api/v1/pauses", Viewer, s.pauses, nil},
		{"GET", "/api/v1/audit", Viewer, s.auditTrail, nil},
		{"POST", "/api/v1/reload", Admin, s.reload, nil},
		{"GET", "/api/v1/namespaces", Viewer, s.namespaces, nil},
		{"GET", "/api/v1/namespaces/{namespace}", Viewer, s.account, nil},
		{"GET", "/api/v1/namespaces/{namespace}/partitions", Viewer, s.partitions, nil},
		{"GET", "/api/v1/namespaces/{namespace}/partitions/{partition}", Viewer, s.partitionNow, nil},
		{"GET", "/api/v1/namespaces/{namespace}/partitions/{partition}/peek", Operator, s.peek, nil},
		{"POST", "/api/v1/namespaces/{namespace}/pause", Operator, s.pause, nil},
		{"POST", "/api/v1/namespaces/{namespace}/resume", Operator, s.resume, nil},
		{"POST", "/api/v1/namespaces/{namespace}/partitions/{partition}/pause", Operator, s.pause, nil},
		{"POST", "/api/v1/namespaces/{namespace}/partitions/{partition}/resume", Operator, s.resume, nil},
		{"POST", "/api/v1/namespaces/{namespace}/purge", Admin, s.purge, nil},
		{"GET", "/api/v1/namespaces/{namespace}/dead", Operator, s.dead, nil},
		{"GET", "/api/v1/namespaces/{namespace}/dead/{letter}", Operator, s.letter, nil},
		{"POST", "/api/v1/namespaces/{namespace}/dead/replay", Operator, s.replay, nil},
		{"POST", "/api/v1/namespaces/{namespace}/dead/delete", Admin, s.deleteDead, nil},
		{"GET", "/api/v1/namespaces/{namespace}/tail", Operator, nil, s.tail},
		{"GET", "/api/v1/namespaces/{namespace}/queues", Viewer, s.queueList, nil},
		{"GET", "/api/v1/namespaces/{namespace}/forecast", Viewer, s.forecast, nil},
		{"GET", "/api/v1/namespaces/{namespace}/queues/{queue}", Viewer, s.queueNow, nil},
		{"GET", "/api/v1/namespaces/{namespace}/queues/{queue}/forecast", Viewer, s.forecast, nil},
		{"GET", "/api/v1/namespaces/{namespace}/queues/{queue}/peek", Operator, s.peekJob, nil},
		{"GET", "/api/v1/namespaces/{namespace}/queues/{queue}/jobs/{job}", Operator, s.getJob, nil},
		{"POST", "/api/v1/namespaces/{namespace}/queues/{queue}/jobs/{job}/delete", Operator, s.deleteJob, nil},
		{"GET", "/api/v1/namespaces/{namespace}/queues/{queue}/dead", Operator, s.deadJobs, nil},
		{"POST", "/api/v1/namespaces/{namespace}/queues/{queue}/dead/respawn", Operator, s.respawnJobs, nil},
		{"POST", "/api/v1/namespaces/{namespace}/queues/{queue}/dead/delete", Operator, s.deleteDeadJobs, nil},
		{"POST", "/api/v1/namespaces/{namespace}/queues/{queue}/purge", Operator, s.purgeJobs, nil},
		{"GET", "/api/v1/control/namespaces", Viewer, s.queueNamespaces, nil},
		{"POST", "/api/v1/control/namespaces", Admin, s.createNamespace, nil},
		{"POST", "/api/v1/control/namespaces/{namespace}/delete", Admin, s.deleteNamespace, nil},
		{"GET", "/api/v1/control/namespaces/{namespace}/tokens", Viewer, s.queueTokens, nil},
		{"POST", "/api/v1/control/namespaces/{namespace}/tokens", Admin, s.createToken, nil},
		{"POST", "/api/v1/control/namespaces/{namespace}/tokens/revoke", Admin, s.revokeToken, nil},
		{"POST", "/api/v1/control/namespaces/{namespace}/tokens/limit", Admin, s.limitToken, nil},
		{"GET", "/api/v1/control/admin-tokens", Admin, s.adminTokens, nil},
		{"POST", "/api/v1/control/admin-tokens", Admin, s.createAdmin, nil},
		{"POST", "/api/v1/control/admin-tokens/revoke", Admin, s.revokeAdmin, nil},
		// pprof's cmdline is not served: flags may hold a password.
		{"GET", "/debug/pprof/", Admin, nil, plain(limitSeconds(pprof.Index))},
		{"GET", "/debug/pprof/profile", Admin, nil, plain(limitSeconds(pprof.Profile))},
		{"GET", "/debug/pprof/trace", Admin, nil, plain(limitSeconds(pprof.Trace))},
		{"GET", "/debug/pprof/symbol", Admin, nil, plain(pprof.Symbol)},
		{"GET", "/debug/pprof/cmdline", Admin, noRoute, nil},
	}
}

func noRoute(*request) (any, error) {
	return nil, &refusal{http.StatusNotFound, wire.CodeNoSuchRoute, "no such route; see /api/v1/openapi.yaml, /metrics, /livez, /readyz"}
}

// handler is the port: each request passes, in this order, the Host header, the token, the
// origin, the route, the method, the role and the type of its body.
func (s *Server) handler() http.Handler {
	paths := map[string][]route{}
	for _, rt := range s.routes() {
		paths[rt.path] = append(paths[rt.path], rt)
	}
	mux := http.NewServeMux() // finds the path's routes; dispatch chooses
	for path, routes := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, routes) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, nil) })
	return checkHost(s.cfg.Listen, s.authenticate(mux))
}

func (s *Server) dispatch(w http.ResponseWriter, hr *http.Request, routes []route) {
	from := hr.Context().Value(senderKey{}).(sender)
	r := &request{Request: hr, view: from.view, who: from.who}
	if crossSite(hr) {
		writeError(w, errCrossOrigin)
		return
	}
	i := slices.IndexFunc(routes, func(rt route) bool {
		return r.Method == rt.method || r.Method == http.MethodHead && rt.method == http.MethodGet
	})
	if i < 0 {
		s.noMethod(w, r, routes)
		return
	}
	rt := routes[i]
	write := rt.method != http.MethodGet
	switch {
	case rt.role > r.who.role && rt.role != probe:
		writeError(w, &refusal{http.StatusForbidden, wire.CodeForbidden, "this needs the role " + rt.role.String() + "; the token of " + r.who.name + " has " + r.who.role.String()})
		return
	case write && !r.isJSON():
		writeError(w, &refusal{http.StatusUnsupportedMediaType, wire.CodeUnsupportedType, "send JSON, with Content-Type: application/json"})
		return
	case write:
		if err := r.readBody(w); err != nil {
			s.answer(w, r, nil, err)
			return
		}
	}
	// The timeout for reading a request would end the answer, too.
	_ = http.NewResponseController(w).SetReadDeadline(noDeadline)
	if rt.serve != nil {
		rt.serve(w, r)
		return
	}
	body, err := rt.answer(r)
	s.answer(w, r, body, err)
}

// noMethod answers 404 to paths without a route, and 405 to other methods.
func (s *Server) noMethod(w http.ResponseWriter, r *request, routes []route) {
	if len(routes) == 0 {
		_, err := noRoute(r)
		s.answer(w, r, nil, err)
		return
	}
	var allowed []string
	var use []string
	for _, rt := range routes {
		use = append(use, rt.method)
		if allowed = append(allowed, rt.method); rt.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeError(w, &refusal{http.StatusMethodNotAllowed, wire.CodeMethodNotAllowed, "use " + strings.Join(use, " or ")})
}

// limitSeconds rejects profiles of more than 60 s: pprof raises the server's write
// timeout to the requested time.
func limitSeconds(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= 60) {
				writeError(w, &refusal{http.StatusBadRequest, wire.CodeBadRequest, "seconds: want 1 to 60"})
				return
			}
		}
		next(w, r)
	}
}

//go:embed openapi.yaml
var openapi []byte

func serveOpenAPI(w http.ResponseWriter, _ *request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapi)
}
