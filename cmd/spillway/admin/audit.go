package admin

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
)

// maxActs are kept of the audit trail.
const maxActs = 1000

// Act is what somebody changed, or tried to.
type Act struct {
	AtMS      int64  `json:"at_ms"`
	Name      string `json:"name"`
	Role      string `json:"role"`
	Action    string `json:"action"` // as openapi.yaml lists them
	Namespace string `json:"namespace,omitempty"`
	Partition string `json:"partition,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Detail    string `json:"detail"`
	Result    string `json:"result"`            // ok, or the error
	Entries   *int64 `json:"entries,omitempty"` // or jobs
}

// trail is the audit trail of this process. The log has each act, too, and keeps it for longer.
type trail struct {
	mu   sync.Mutex
	acts []Act // a ring of maxActs
	next int
}

// record keeps an act of a request, and logs it.
func (s *Server) record(r *request, a Act, err error) { s.note(r.who, a, err) }

// RecordSignal keeps a reload that SIGHUP asked for. The reload itself is in the log.
func (s *Server) RecordSignal(changed []string, err error) {
	s.trail.add(identity{"SIGHUP", Admin}, reloaded(changed), err)
}

func (s *Server) note(who identity, a Act, err error) {
	a = s.trail.add(who, a, err)
	log := s.log.Info
	if err != nil {
		log = s.log.Warn
	}
	fields := []zap.Field{
		zap.String("name", a.Name), zap.String("role", a.Role), zap.String("action", a.Action), zap.String("namespace", a.Namespace),
		zap.String("partition", a.Partition), zap.String("queue", a.Queue), zap.String("detail", a.Detail), zap.String("result", a.Result),
	}
	if a.Entries != nil {
		fields = append(fields, zap.Int64("entries", *a.Entries))
	}
	log("operator acted", fields...)
}

// add keeps an act. It fills in who, when and the result.
func (t *trail) add(who identity, a Act, err error) Act {
	a.AtMS, a.Name, a.Role, a.Result = time.Now().UnixMilli(), who.name, who.role.String(), "ok"
	if err != nil {
		a.Result = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.acts) < maxActs {
		t.acts = append(t.acts, a)
	} else {
		t.acts[t.next%maxActs] = a
	}
	t.next++
	return a
}

// auditTrail lists the acts, the newest first.
func (s *Server) auditTrail(*request) (any, error) {
	t := &s.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Act, 0, len(t.acts))
	for i := range t.acts {
		list = append(list, t.acts[(t.next-1-i)%len(t.acts)])
	}
	return map[string]any{"acts": list}, nil
}

// A Reload reads the configuration again and returns the settings that changed. After an
// error, which names each mistake, what ran before goes on.
type Reload func(ctx context.Context) (changed []string, err error)

// reloadTimeout bounds a reload, which may wait for batches that are under way.
const reloadTimeout = time.Minute

func reloaded(changed []string) Act {
	return Act{Action: "reload", Detail: strings.Join(changed, ", ")}
}

func (s *Server) reload(r *request) (any, error) {
	if err := r.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if s.cfg.Reload == nil {
		return nil, &refusal{http.StatusNotFound, wire.CodeNoSuchRoute, "this process cannot reload"}
	}
	ctx, cancel := s.acting(r, reloadTimeout)
	defer cancel()
	changed, err := s.cfg.Reload(ctx)
	s.record(r, reloaded(changed), err)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	if changed == nil {
		changed = []string{}
	}
	return map[string]any{"changed": changed}, nil
}
