package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/wire"
)

// checkHost rejects requests of web pages. A browser treats a page whose name
// resolves to this port ("DNS rebinding") as same-origin; only its Host header
// shows the other name.
func checkHost(listen string, next http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if !hostAllowed(r.Host, r.URL.Path, own) {
			writeError(w, http.StatusForbidden, codeBadHost, "this port answers requests to its own address only; the Host header has another name")
			return
		}
		if r.ContentLength != 0 {
			// No route takes a body. net/http hides that a body came with two
			// lengths, so the bytes after it may not be a request.
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
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if IsLoopback(host) || strings.EqualFold(host, own) && own != "" {
		return true
	}
	if IsLoopback(own) {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || path == "/livez" || path == "/readyz" || path == "/metrics"
}

// requireToken answers 401 to requests without the admin token, except to probes.
// The token comes as a bearer token, or as the password of any user, which browsers
// can ask for. A nil hash turns authentication off.
func requireToken(tokenHash *[sha256.Size]byte, reg prometheus.Registerer, next http.Handler) http.Handler {
	if tokenHash == nil {
		return next
	}
	unauthorized := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_admin_unauthorized_total", Help: "Requests to the admin port that were answered 401, without the admin token or with a wrong one.",
	})
	reg.MustRegister(unauthorized)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(bearerOrPassword(r)))
		probe := r.URL.Path == "/livez" || r.URL.Path == "/readyz"
		if subtle.ConstantTimeCompare(sum[:], tokenHash[:]) != 1 && !probe {
			unauthorized.Inc()
			w.Header().Add("WWW-Authenticate", "Bearer")
			w.Header().Add("WWW-Authenticate", `Basic realm="spillway", charset="UTF-8"`)
			writeError(w, http.StatusUnauthorized, wire.CodeUnauthorized, "send the admin token: Authorization: Bearer, or as the password of any user")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearerOrPassword is the token of a request; empty unless there is exactly one
// Authorization header.
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

// onlyGet answers 405 to methods other than GET and HEAD, as JSON.
func onlyGet(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, wire.CodeMethodNotAllowed, "use GET")
			return
		}
		next(w, r)
	})
}

// limitSeconds rejects profiles of more than 60 s: pprof raises the server's write
// timeout to the requested time.
func limitSeconds(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= 60) {
				writeError(w, http.StatusBadRequest, wire.CodeBadRequest, "seconds: want 1 to 60")
				return
			}
		}
		next(w, r)
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeError(w, http.StatusNotFound, wire.CodeNoSuchRoute, "no such route; see /api/v1/namespaces, /metrics, /livez, /readyz")
}

// IsLoopback reports whether a host is localhost or a loopback IP address. Other
// names do not count, because what they resolve to can change.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}
