package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
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
			writeError(w, &rejection{http.StatusForbidden, wire.CodeBadHost,
				"this port answers requests to its own address only; the Host header has another name"})
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

var errCrossOrigin = &rejection{http.StatusForbidden, wire.CodeCrossOrigin,
	"requests of pages of other origins are rejected"}

// crossSite reports whether a page of another origin sends a request that it may not send. It
// cannot read what it asks for, but a profile, an audit or a tail costs all the same. A link to
// the console, the metrics or a probe is followed, and a preflight allows nothing.
func crossSite(r *http.Request) bool {
	if r.Method == http.MethodOptions || !wire.CrossSite(r.Host, r.Header.Get("Origin"),
		r.Header.Get("Sec-Fetch-Site")) {
		return false
	}
	link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	return !link || strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/debug/")
}

// authenticate answers 401 to requests without a token, except to probes and to paths of View.More. It hands on
// who sends a request in its context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := s.cfg.Source()
		who, ok := identify(r, v.Tokens)
		r = r.WithContext(context.WithValue(r.Context(), senderKey{}, sender{who, v}))
		var more http.Handler // which says who may do what, by Authorize
		if v.More != nil {
			more = v.More(r.URL.Path)
		}
		switch {
		case more != nil && crossSite(r):
			writeError(w, errCrossOrigin)
		case more != nil:
			more.ServeHTTP(w, r)
		case !ok && r.URL.Path != "/livez" && r.URL.Path != "/readyz":
			s.unauthenticated(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// sender is what authenticate finds, under senderKey in the context.
type sender struct {
	who  identity
	view View
}

type senderKey struct{}

// A Role is what a token may do. Each includes those before it.
type Role int

const (
	probe    Role = iota // no token
	Viewer               // figures, tables, drops, pauses, the audit trail, namespaces and their tokens' names
	Operator             // payloads, masked; pause, resume, replay; respawn, delete and purge of jobs
	Admin                // purge, delete of entries, reload, namespaces, tokens, payloads without masks, profiles
)

var roleNames = [...]string{Viewer: "viewer", Operator: "operator", Admin: "admin"}

func (r Role) String() string { return roleNames[r] }

// UnmarshalText reads viewer, operator or admin.
func (r *Role) UnmarshalText(text []byte) error {
	for role := Viewer; role <= Admin; role++ {
		if roleNames[role] == string(text) {
			*r = role
			return nil
		}
	}
	return fmt.Errorf("%q is not a role: write viewer, operator or admin", text)
}

// A Token lets a request in, under its name and with its role.
type Token struct {
	Name string // 1 to 64 letters, digits, dots, dashes and underscores
	Role Role
	Hash [sha256.Size]byte // of the token
}

// identity is who sends a request.
type identity struct {
	name string
	role Role
}

// lacks is the answer to who has a lower role than what needs.
func (who identity) lacks(what string, needs Role) *rejection {
	return &rejection{http.StatusForbidden, wire.CodeForbidden,
		what + " needs the role " + needs.String() + "; the token of " + who.name +
			" has " + who.role.String()}
}

// anonymous may do everything: no token is configured, which needs a listener on loopback.
var anonymous = identity{"anonymous", Admin}

// identify finds the token of a request. It compares with every token in constant time.
func identify(r *http.Request, tokens []Token) (who identity, ok bool) {
	if len(tokens) == 0 {
		return anonymous, true
	}
	sum := sha256.Sum256([]byte(bearerOrPassword(r)))
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(sum[:], t.Hash[:]) == 1 {
			who, ok = identity{t.Name, t.Role}, true
		}
	}
	return who, ok
}

// bearerOrPassword is the token of a request; empty unless there is exactly one
// Authorization header. Browsers can ask for a password, of any user.
func bearerOrPassword(r *http.Request) string {
	if len(r.Header.Values("Authorization")) != 1 {
		return ""
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}

// Authorize finds the name of the token of a request to a handler of View.More. false: the
// token has a lower role, or is none; that is answered.
func (s *Server) Authorize(w http.ResponseWriter, r *http.Request,
	needs Role) (name string, ok bool) {
	from, _ := r.Context().Value(senderKey{}).(sender)
	switch {
	case from.who.role == probe:
		s.unauthenticated(w)
	case from.who.role < needs:
		writeError(w, from.who.lacks("this", needs))
	default:
		return from.who.name, true
	}
	return "", false
}

// Record adds what a request to a handler of View.More changed to the audit trail.
func (s *Server) Record(r *http.Request, a Act, err error) {
	from, _ := r.Context().Value(senderKey{}).(sender)
	s.note(from.who, a, err)
}

// unauthenticated answers a request without a token, or with one that is none.
func (s *Server) unauthenticated(w http.ResponseWriter) {
	s.unauthorized.Inc()
	w.Header().Add("WWW-Authenticate", "Bearer")
	w.Header().Add("WWW-Authenticate", `Basic realm="spillway", charset="UTF-8"`)
	writeError(w, &rejection{http.StatusUnauthorized, wire.CodeUnauthorized,
		"send the admin token: Authorization: Bearer, or as the password of any user"})
}
