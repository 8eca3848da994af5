package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillway-io/spillway/ingest/wire"
)

// Codes that only this port has.
const (
	codeConflict     wire.Code = "conflict"
	codeTooManyTails wire.Code = "too_many_tails"
	codeNoSuchLetter wire.Code = "no_such_dead_letter"
)

// headers are those of every answer. The console has its scripts and styles in files, so no
// page of this port runs what an entry or a name brings along.
var headers = map[string]string{
	"Content-Security-Policy":      "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

// checkHost sets the headers of every answer, and rejects requests of web pages. A browser
// treats a page whose name resolves to this port ("DNS rebinding") as same-origin; only its
// Host header shows the other name.
func checkHost(listen string, next http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for key, value := range headers {
			h.Set(key, value)
		}
		if !hostAllowed(r.Host, r.URL.Path, own) {
			writeError(w, &refusal{http.StatusForbidden, wire.CodeBadHost, "this port answers requests to its own address only; the Host header has another name"})
			return
		}
		if r.ContentLength != 0 {
			// net/http hides that a body came with two lengths, so the bytes after it
			// may not be a request.
			h.Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed accepts loopback names and the listener's own name. A listener on
// another address has names and addresses that we cannot list. It accepts every IP
// address, because DNS rebinding needs a name, and every name for the routes of
// probes and Prometheus, whose answers hold nothing of entries or partitions.
func hostAllowed(header, path, own string) bool {
	host := wire.HostName(header)
	if wire.IsLoopback(host) || strings.EqualFold(host, own) && own != "" {
		return true
	}
	if wire.IsLoopback(own) {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || path == "/livez" || path == "/readyz" || path == "/metrics"
}

var errCrossOrigin = &refusal{http.StatusForbidden, wire.CodeCrossOrigin, "requests of pages of other origins are rejected"}

// crossSite reports whether a page of another origin sends a request that it may not send. It
// cannot read what it asks for, but a profile, an audit or a tail costs all the same. A link to
// the console, the metrics or a probe is followed, and a preflight allows nothing.
func crossSite(r *http.Request) bool {
	if r.Method == http.MethodOptions || !wire.CrossSite(r.Host, r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")) {
		return false
	}
	link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	return !link || strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/debug/")
}

// authenticate answers 401 to requests without a token, except to probes. It hands on who
// sends the others in their context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := s.cfg.Source()
		if s.serveMore(w, r, v) {
			return
		}
		who, ok := identify(r, v.Tokens)
		if !ok && r.URL.Path != "/livez" && r.URL.Path != "/readyz" {
			s.unauthenticated(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), senderKey{}, sender{who, v})))
	})
}

// sender is what authenticate finds, under senderKey in the context.
type sender struct {
	who  identity
	view View
}

type senderKey struct{}
