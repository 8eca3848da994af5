package main

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

// guardHost keeps web pages out of the admin port. A page whose own name was
// re-pointed at us ("DNS rebinding") is same-origin to its browser; only the
// Host header gives it away.
func guardHost(listen string, next http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if !hostAllowed(r.Host, r.URL.Path, own) {
			writeError(w, http.StatusForbidden, codeBadHost, "this port answers to its own address only, not to the name in the Host header")
			return
		}
		if r.ContentLength != 0 {
			// Nothing here takes a body, and net/http keeps to itself that one
			// came with two lengths: what follows it is not to be trusted.
			h.Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed accepts loopback names and the listener's own. A listener beyond
// loopback is also reached by addresses we cannot list: any literal address is
// fine, for rebinding takes a name, and what probes and Prometheus ask for, by
// names of services, tells a page nothing of entries or partitions.
func hostAllowed(header, path, own string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if isLoopback(host) || strings.EqualFold(host, own) && own != "" {
		return true
	}
	if isLoopback(own) {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || path == "/livez" || path == "/readyz" || path == "/metrics"
}

// guardToken asks everybody but probes for the admin token: as a bearer token,
// or as the password of any user, which browsers know how to ask for.
func guardToken(login *[sha256.Size]byte, reg prometheus.Registerer, next http.Handler) http.Handler {
	if login == nil {
		return next
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_admin_unauthorized_total", Help: "Requests to the admin port without its token, or with another.",
	})
	reg.MustRegister(refused)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(presented(r)))
		probe := r.URL.Path == "/livez" || r.URL.Path == "/readyz"
		if subtle.ConstantTimeCompare(sum[:], login[:]) != 1 && !probe {
			refused.Inc()
			w.Header().Add("WWW-Authenticate", "Bearer")
			w.Header().Add("WWW-Authenticate", `Basic realm="spillway", charset="UTF-8"`)
			writeError(w, http.StatusUnauthorized, wire.CodeUnauthorized, "send the admin token: Authorization: Bearer, or as the password of any user")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// presented is the token that a request comes with; empty without exactly one.
func presented(r *http.Request) string {
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

// onlyGet refuses other methods in our own form.
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

// brief refuses profiles over more than a minute: pprof raises the server's own
// time limit to whatever it is asked for.
func brief(next http.HandlerFunc) http.HandlerFunc {
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
