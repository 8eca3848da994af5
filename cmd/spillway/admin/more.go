package admin

import (
	"context"
	"net/http"

	"github.com/spillway-io/spillway/ingest/wire"
)

// serveMore answers a path of View.More; false: it is none. Requests of web pages are
// rejected before. The handler says who may do what, by Authorize.
func (s *Server) serveMore(w http.ResponseWriter, r *http.Request, v View) bool {
	if v.More == nil {
		return false
	}
	h := v.More(r.URL.Path)
	if h == nil {
		return false
	}
	if crossSite(r) {
		writeError(w, errCrossOrigin)
		return true
	}
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewKey{}, v)))
	return true
}

type viewKey struct{}

// Authorize finds the name of the token of a request to a handler of View.More. false: the
// token has a lower role, or is none; that is answered.
func (s *Server) Authorize(w http.ResponseWriter, r *http.Request, needs Role) (name string, ok bool) {
	v, _ := r.Context().Value(viewKey{}).(View)
	who, known := identify(r, v.Tokens)
	switch {
	case !known:
		s.unauthenticated(w)
		return "", false
	case who.role < needs:
		writeError(w, &refusal{http.StatusForbidden, wire.CodeForbidden, "this needs the role " + needs.String() + "; the token of " + who.name + " has " + who.role.String()})
		return "", false
	}
	return who.name, true
}

// Record adds what a request to a handler of View.More changed to the audit trail.
func (s *Server) Record(r *http.Request, a Act, err error) {
	v, _ := r.Context().Value(viewKey{}).(View)
	who, _ := identify(r, v.Tokens)
	s.note(who, a, err)
}

// unauthenticated answers a request without a token, or with one that is none.
func (s *Server) unauthenticated(w http.ResponseWriter) {
	s.unauthorized.Inc()
	w.Header().Add("WWW-Authenticate", "Bearer")
	w.Header().Add("WWW-Authenticate", `Basic realm="spillway", charset="UTF-8"`)
	writeError(w, &refusal{http.StatusUnauthorized, wire.CodeUnauthorized, "send the admin token: Authorization: Bearer, or as the password of any user"})
}
