package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// ledgerStore is what the admin server needs of the store.
type ledgerStore interface {
	Namespace(name string) *partition.Namespace
	Namespaces() []*partition.Namespace
	Overview(ctx context.Context, ns *partition.Namespace) (partition.Overview, error)
	Audit(ctx context.Context, ns *partition.Namespace) (int64, error)
}

// admin is the server of the second port: for operators, Prometheus and probes,
// never for clients. Every route only reads.
type admin struct {
	cfg    adminConfig
	store  ledgerStore
	health health
	log    *zap.Logger
	server *http.Server

	mu       sync.Mutex
	listener net.Listener // nil before Start
	stopped  bool
	serving  sync.WaitGroup
}

// adminConfig is what the App tells the admin server.
type adminConfig struct {
	Listen    string               // host:port; also decides which Host headers it accepts
	TLS       *tls.Config          // nil: plain HTTP
	TokenHash *[sha256.Size]byte   // of the token that requests must have; nil: no authentication
	Settings  map[string]Namespace // by namespace, their URLs redacted
	Failed    func(error)          // called when the server ends without Stop
}

// health says whether the service is ready, and with which warnings.
type health interface {
	ready() error
	warnings() []string
}

// Codes that only this port has.
const (
	codeCrossOrigin wire.Code = "cross_origin"
	codeBadHost     wire.Code = "bad_host"
)

const (
	overviewTimeout = 5 * time.Second
	auditTimeout    = time.Minute // an audit counts every partition
)

// newAdmin makes the server; Start opens its port.
func newAdmin(cfg adminConfig, store ledgerStore, metrics *prometheus.Registry, health health, log *zap.Logger) *admin {
	a := &admin{cfg: cfg, store: store, health: health, log: log}
	mux := http.NewServeMux()
	get := func(path string, h http.HandlerFunc) { mux.Handle(path, onlyGet(h)) }
	get("/livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	get("/readyz", a.readyz)
	get("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}).ServeHTTP)
	get("/api/v1/namespaces", a.namespaces)
	get("/api/v1/namespaces/{namespace}", a.ledger)
	// pprof's cmdline is not served: flags may hold a password.
	get("/debug/pprof/", limitSeconds(pprof.Index))
	get("/debug/pprof/profile", limitSeconds(pprof.Profile))
	get("/debug/pprof/trace", limitSeconds(pprof.Trace))
	get("/debug/pprof/symbol", pprof.Symbol)
	get("/debug/pprof/cmdline", notFound)
	mux.HandleFunc("/", notFound)

	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusForbidden, codeCrossOrigin, "writes from other origins are rejected")
	}))
	a.server = &http.Server{
		Handler:           checkHost(cfg.Listen, requireToken(cfg.TokenHash, metrics, crossOrigin.Handler(mux))),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(serverLog{log}, "", 0),
	}
	return a
}

// serverLog receives what net/http logs. Anybody can make handshakes fail any
// number of times, so those lines are logged at debug level.
type serverLog struct{ log *zap.Logger }

func (s serverLog) Write(line []byte) (int, error) {
	level := zap.WarnLevel
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = zap.DebugLevel
	}
	s.log.Log(level, "admin server", zap.String("detail", string(bytes.TrimSpace(line))))
	return len(line), nil
}

// Start opens the port and answers requests until Stop.
func (a *admin) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener != nil || a.stopped {
		return errStartedBefore
	}
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(ctx), "tcp", a.cfg.Listen)
	if err != nil {
		a.stopped = true
		return err
	}
	if a.cfg.TLS != nil {
		l = tls.NewListener(l, a.cfg.TLS)
	}
	a.listener = l
	a.serving.Go(func() {
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.cfg.Failed(fmt.Errorf("admin server: %w", err))
		}
	})
	return nil
}

// Stop closes the port and finishes requests. Those still running when ctx ends
// are cut.
func (a *admin) Stop(ctx context.Context) error {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	err := a.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, a.server.Close())
	}
	a.serving.Wait()
	return err
}

// address is where the started server listens.
func (a *admin) address() string { return a.listener.Addr().String() }

func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.health.ready(); err != nil {
		writeError(w, http.StatusServiceUnavailable, wire.CodeNotReady, err.Error())
		return
	}
	// Only operators use this port, so the warnings may name details of the store.
	writeJSON(w, http.StatusOK, struct {
		Status   string   `json:"status"`
		Warnings []string `json:"warnings,omitempty"`
	}{"ok", a.health.warnings()})
}

func (a *admin) namespaces(w http.ResponseWriter, _ *http.Request) {
	list := []json.RawMessage{}
	for _, ns := range a.store.Namespaces() {
		list = append(list, namespaceJSON(ns, a.cfg.Settings[ns.Name]))
	}
	writeJSON(w, http.StatusOK, map[string]any{"namespaces": list})
}

// namespaceJSON is the name of a namespace and its settings, under the keys of the
// configuration. Durations are whole milliseconds, under a key that ends with _ms.
func namespaceJSON(ns *partition.Namespace, view Namespace) json.RawMessage {
	copyFields(&view, ns.Policy)
	object := fmt.Appendf(nil, `{"namespace":%q`, ns.Name)
	for _, s := range settingsOf(&view) {
		key, value := s.key(), s.value
		if d, ok := value.(*time.Duration); ok {
			key, value = key+"_ms", d.Milliseconds()
		}
		text, _ := json.Marshal(value) // strings and numbers only
		object = fmt.Appendf(object, `,%q:%s`, key, text)
	}
	return append(object, '}')
}

// account is the answer about one namespace. Residual is set when the request
// asks for an audit: the difference between the ledger's buffered and a count of
// the entries. It is 0 unless entries moved during the count.
type account struct {
	Namespace   string           `json:"namespace"`
	Ledger      partition.Ledger `json:"ledger"`
	Reclaimed   int64            `json:"reclaimed"`
	Partitions  int64            `json:"partitions"`
	DeadLetters int64            `json:"dead_letters"`
	DeadEvicted int64            `json:"dead_letters_evicted"`
	DeadBytes   int64            `json:"dead_letters_bytes"`
	OverdueMS   int64            `json:"overdue_ms"` // of the partition that has been due for longest
	Residual    *int64           `json:"residual,omitempty"`
}

func (a *admin) ledger(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("namespace")
	ns := a.store.Namespace(name)
	if ns == nil {
		writeError(w, http.StatusNotFound, wire.CodeNoSuchNamespace, "there is no namespace "+strconv.Quote(name))
		return
	}
	audit := false
	if v := r.URL.Query().Get("audit"); v != "" {
		var err error
		if audit, err = strconv.ParseBool(v); err != nil {
			writeError(w, http.StatusBadRequest, wire.CodeBadRequest, "audit: want 1 or 0")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), overviewTimeout)
	defer cancel()
	o, err := a.store.Overview(ctx, ns)
	if err != nil {
		a.storeFailed(w, "read overview", err)
		return
	}
	answer := account{
		Namespace: ns.Name, Ledger: o.Ledger, Reclaimed: o.Reclaimed, Partitions: o.Partitions,
		DeadLetters: o.DeadLetters, DeadEvicted: o.DeadEvicted, DeadBytes: o.DeadBytes, OverdueMS: o.Overdue.Milliseconds(),
	}
	if audit {
		ctx, cancel := context.WithTimeout(r.Context(), auditTimeout)
		defer cancel()
		residual, err := a.store.Audit(ctx, ns)
		if err != nil {
			a.storeFailed(w, "audit", err)
			return
		}
		answer.Residual = &residual
	}
	writeJSON(w, http.StatusOK, answer)
}

func (a *admin) storeFailed(w http.ResponseWriter, what string, err error) {
	a.log.Warn("admin request failed", zap.String("what", what), zap.Error(err))
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store did not answer; see /readyz")
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(body)
}

func writeError(w http.ResponseWriter, status int, code wire.Code, message string) {
	failure := wire.Failure{Code: code, Message: message}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(failure.Append(nil))
}
