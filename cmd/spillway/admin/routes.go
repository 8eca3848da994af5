package admin

import (
	"context"
	_ "embed"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spillway-io/spillway/cmd/spillway/admin/console"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
)

// A route is a method and a path, and what answers it. GET stands for HEAD, too. A POST or PUT takes JSON.
type route struct {
	pattern string
	role    Role // that it needs; probe: none
	answer  func(*request) (any, error)
}

// routes are all routes of the port, and who may use them.
func (s *Server) routes() []route {
	served := func(h http.Handler) func(*request) (any, error) {
		return func(*request) (any, error) { return h, nil }
	}
	page := served(console.Handler())
	return append(s.verbs(), []route{
		{"GET /livez", probe, func(*request) (any, error) { return map[string]string{"status": "ok"}, nil }},
		{"GET /readyz", probe, s.readyz},
		{"GET /metrics", Viewer, served(s.metrics)},
		{"GET /{$}", Viewer, page},
		{"GET /console/", Viewer, page},
		{"GET /api/v1/openapi.yaml", Viewer, served(http.HandlerFunc(serveOpenAPI))},
		{"POST /api/v1/reload", Admin, s.reload},
		// pprof's cmdline is not served: flags may hold a password.
		{"GET /debug/pprof/", Admin, served(limitSeconds(pprof.Index))},
		{"GET /debug/pprof/profile", Admin, served(limitSeconds(pprof.Profile))},
		{"GET /debug/pprof/trace", Admin, served(limitSeconds(pprof.Trace))},
		{"GET /debug/pprof/symbol", Admin, served(http.HandlerFunc(pprof.Symbol))},
		{"GET /debug/pprof/cmdline", Admin, noRoute},
	}...)
}

func noRoute(*request) (any, error) {
	return nil, notFound(wire.CodeNoSuchRoute,
		"no such route; see /api/v1/openapi.yaml, /metrics, /livez, /readyz")
}

// handler is the port: each request passes, in this order, the Host header, the token, the
// origin, the route, the method, the role and the type of its body.
func (s *Server) handler() http.Handler {
	paths := map[string]map[string]route{} // by path and method
	for _, rt := range s.routes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		if paths[path] == nil {
			paths[path] = map[string]route{}
		}
		paths[path][method] = rt
	}
	mux := http.NewServeMux() // finds the path's routes; dispatch chooses
	for path, routes := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, routes) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, nil) })
	return checkHost(s.cfg.Listen, s.authenticate(mux))
}

func (s *Server) dispatch(w http.ResponseWriter, hr *http.Request, routes map[string]route) {
	from := hr.Context().Value(senderKey{}).(sender)
	r := &request{Request: hr, server: s, view: from.view, who: from.who}
	if crossSite(hr) {
		writeError(w, errCrossOrigin)
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	rt, known := routes[method]
	if !known {
		s.noMethod(w, r, routes)
		return
	}
	var end context.CancelFunc
	switch {
	case rt.role > r.who.role && rt.role != probe:
		writeError(w, r.who.lacks("this", rt.role))
		return
	case method == http.MethodGet:
		r.ctx, end = context.WithTimeout(hr.Context(), readTimeout)
	case method != http.MethodDelete && !r.isJSON():
		writeError(w, &rejection{http.StatusUnsupportedMediaType, wire.CodeUnsupportedType,
			"send JSON, with Content-Type: application/json"})
		return
	default:
		if err := r.readBody(w); err != nil {
			s.reject(w, r, err)
			return
		}
		r.ctx, end = s.acting(r, writeTimeout)
	}
	defer end()
	// The timeout for reading a request would end the answer, too.
	_ = http.NewResponseController(w).SetReadDeadline(noDeadline)
	body, err := rt.answer(r)
	s.answer(w, r, body, err)
}

// noMethod answers 404 to paths without a route, and 405 to other methods.
func (s *Server) noMethod(w http.ResponseWriter, r *request, routes map[string]route) {
	if len(routes) == 0 {
		_, err := noRoute(r)
		s.reject(w, r, err)
		return
	}
	use := slices.Sorted(maps.Keys(routes))
	w.Header().Set("Allow", strings.Replace(strings.Join(use, ", "), "GET", "GET, HEAD", 1))
	writeError(w, &rejection{http.StatusMethodNotAllowed, wire.CodeMethodNotAllowed,
		"use " + strings.Join(use, " or ")})
}

// limitSeconds rejects profiles of more than 60 s: pprof raises the server's write
// timeout to the requested time.
func limitSeconds(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= 60) {
				writeError(w, badRequest("seconds: want 1 to 60"))
				return
			}
		}
		next(w, r)
	})
}

//go:embed openapi.yaml
var written []byte

var openapi = sync.OnceValue(func() []byte { return verb.Describe(written, true, slices.Concat(own, verb.Controls)...) })

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapi())
}
