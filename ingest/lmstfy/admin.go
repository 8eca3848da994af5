package lmstfy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/control"
)

// maxForm is the largest body of a request to the admin port, in bytes.
const maxForm = 64 << 10

// Control is what is made at run time; *control.Control is one.
type Control interface {
	Snapshot() *control.Snapshot
	CreateTokenIn(ctx context.Context, n control.Namespace, t control.Token) error
	DeleteToken(ctx context.Context, namespace string, hash [sha256.Size]byte) error
	ChangeLimit(ctx context.Context, namespace string, hash [sha256.Size]byte,
		change func(now *control.Limit) (*control.Limit, error)) error
}

// AdminConfig is what an Admin is made of.
type AdminConfig struct {
	Control Control
	// Pools are the names of the pools, DefaultPool first.
	Pools func() []string
	// Queues lists the queues of a namespace that have jobs.
	Queues func(ctx context.Context, namespace string) ([]string, error)
	// Authorize reports whether a request may read, or see and change tokens, and the name
	// of its token; else it has answered.
	Authorize func(w http.ResponseWriter, r *http.Request, tokens bool) (who string, ok bool)
	// Record adds what a request changed, or failed to change, to the audit trail.
	Record    func(r *http.Request, action, namespace, detail string, err error)
	Version   Version
	AccessLog *AccessLog
	Log       *zap.Logger
}

// Version is the answer of /version.
type Version struct {
	Commit  string `json:"build_commit"`
	Date    string `json:"build_date"`
	Version string `json:"version"`
}

// Admin answers the requests of lmstfy's admin API.
type Admin struct {
	AdminConfig
	mux *http.ServeMux
}

// IsAdminPath reports whether a path is of the admin API.
func IsAdminPath(path string) bool {
	switch path {
	case "/pools", "/version", "/info", "/limits", "/accesslog":
		return true
	}
	return strings.HasPrefix(path, "/token/")
}

// NewAdmin makes the handler.
func NewAdmin(cfg AdminConfig) *Admin {
	a := &Admin{cfg, http.NewServeMux()}
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request)) { a.mux.HandleFunc(pattern, h) }
	handle("GET /pools",
		func(w http.ResponseWriter, _ *http.Request) {
			answerIndented(w, http.StatusOK, a.Pools())
		})
	handle("GET /version",
		func(w http.ResponseWriter, _ *http.Request) {
			answerIndented(w, http.StatusOK, a.Version)
		})
	handle("GET /info", a.info)
	handle("POST /token/{namespace}", a.authorized(a.createToken))
	handle("GET /token/{namespace}", a.authorized(a.listTokens))
	handle("DELETE /token/{namespace}/{token}", a.authorized(a.deleteToken))
	handle("POST /token/{namespace}/{token}/limit", a.authorized(a.setLimit))
	handle("PUT /token/{namespace}/{token}/limit", a.authorized(a.setLimit))
	handle("GET /token/{namespace}/{token}/limit", a.authorized(a.showLimit))
	handle("DELETE /token/{namespace}/{token}/limit", a.authorized(a.deleteLimit))
	handle("GET /limits", a.authorized(a.listLimits))
	handle("GET /accesslog", a.authorized(a.showAccessLog))
	handle("POST /accesslog", a.authorized(a.setAccessLog))
	handle("/",
		func(w http.ResponseWriter, _ *http.Request) {
			answerText(w, http.StatusNotFound, "api not found")
		})
	return a
}

// ServeHTTP answers one request.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(headerRequestID, ulid.Make().String())
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if r.Method == http.MethodHead { // which ServeMux takes for a GET
		answerText(w, http.StatusNotFound, "api not found")
		return
	}
	a.mux.ServeHTTP(w, r)
}

// authorized lets only those through who may change tokens. Lists of tokens are for them,
// too: they show tokens.
func (a *Admin) authorized(next func(w http.ResponseWriter, r *http.Request,
	who string)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if who, ok := a.Authorize(w, r, true); ok {
			next(w, r, who)
		}
	}
}

// info lists the queues of each namespace of a pool.
func (a *Admin) info(w http.ResponseWriter, r *http.Request) {
	if _, ok := a.Authorize(w, r, false); !ok {
		return
	}
	all := map[string][]string{}
	for _, ns := range a.Control.Snapshot().NamespacesOf(poolOf(r)) {
		queues, err := a.Queues(r.Context(), ns.Name)
		if err != nil {
			a.failed(w, "list queues", err)
			return
		}
		if len(queues) > 0 {
			all[ns.Name] = queues
		}
	}
	answerIndented(w, http.StatusOK, all)
}

// poolOf is the pool that a request names.
func poolOf(r *http.Request) string {
	if pool := r.FormValue("pool"); pool != "" {
		return pool
	}
	return DefaultPool
}

func (a *Admin) showAccessLog(w http.ResponseWriter, _ *http.Request, _ string) {
	status := "disabled"
	if a.AccessLog.on.Load() {
		status = "enabled"
	}
	answer(w, http.StatusOK, map[string]string{"status": status})
}

func (a *Admin) setAccessLog(w http.ResponseWriter, r *http.Request, who string) {
	status := r.FormValue("status")
	if status != "enable" && status != "disable" {
		answerText(w, http.StatusBadRequest, "invalid status")
		return
	}
	a.AccessLog.on.Store(status == "enable")
	a.Record(r, "access_log", "", status, nil)
	a.showAccessLog(w, r, who)
}

// failed answers an error of the store.
func (a *Admin) failed(w http.ResponseWriter, what string, err error) {
	a.Log.Warn("request of lmstfy's admin API failed", zap.String("request", what), zap.Error(err))
	answerText(w, http.StatusInternalServerError, "internal error")
}

func answerText(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	writeAnswer(w, status, text, err)
}

// answerIndented answers in the form of pools, version, info and tokens.
func answerIndented(w http.ResponseWriter, status int, body any) {
	text, err := json.MarshalIndent(body, "", "    ")
	writeAnswer(w, status, text, err)
}

func writeAnswer(w http.ResponseWriter, status int, text []byte, err error) {
	if err != nil { // a bug: what is sent can always be encoded
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have gone
}
