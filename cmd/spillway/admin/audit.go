package admin

import (
	"cmp"
	"context"
	"slices"
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
	Action    string `json:"action" help:"The operationId of a verb, or reload or access_log."`
	Namespace string `json:"namespace,omitempty"`
	Partition string `json:"partition,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Detail    string `json:"detail"`
	Result    string `json:"result" help:"ok, or the error."`
	Entries   *int64 `json:"entries,omitempty" help:"How many entries or jobs."`
}

// auditLog is the audit trail of this process. The log has each act, too, and keeps it for longer.
type auditLog struct {
	mu   sync.Mutex
	acts []Act // maxActs at most, the newest last
}

// record keeps an act of a request, and logs it.
func (s *Server) record(r *request, a Act, err error) { s.note(r.who, a, err) }

// RecordSignal keeps a reload that SIGHUP asked for. The reload itself is in the log.
func (s *Server) RecordSignal(changed []string, err error) {
	s.audit.add(identity{"SIGHUP", Admin}, reloaded(changed), err)
}

func (s *Server) note(who identity, a Act, err error) {
	a = s.audit.add(who, a, err)
	log := s.log.Info
	if err != nil {
		log = s.log.Warn
	}
	fields := []zap.Field{
		zap.String("name", a.Name), zap.String("role", a.Role), zap.String("action",
			a.Action), zap.String("namespace", a.Namespace),
		zap.String("partition", a.Partition), zap.String("queue", a.Queue), zap.String("detail",
			a.Detail), zap.String("result", a.Result),
	}
	if a.Entries != nil {
		fields = append(fields, zap.Int64("entries", *a.Entries))
	}
	log("operator acted", fields...)
}

// add keeps an act. It fills in who, when and the result.
func (l *auditLog) add(who identity, a Act, err error) Act {
	a.AtMS = time.Now().UnixMilli()
	a.Name = who.name
	a.Role = who.role.String()
	if a.Result == "" && err != nil {
		a.Result = err.Error()
	}
	a.Result = cmp.Or(a.Result, "ok")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acts = append(l.acts, a); len(l.acts) > maxActs {
		l.acts = slices.Delete(l.acts, 0, 1)
	}
	return a
}

type auditQuery struct {
	Limit int `default:"50" bounds:"1..1000" help:"Acts to list, at most 1000."`
}

// Acts is the audit trail.
type Acts struct {
	Acts []Act `json:"acts" help:"The newest first."`
}

func (s *Server) auditTrail(_ *request, q *auditQuery) (Acts, error) {
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	list := append([]Act{}, s.audit.acts[max(0, len(s.audit.acts)-q.Limit):]...)
	slices.Reverse(list)
	return Acts{list}, nil
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
	r.empty()
	if s.cfg.Reload == nil {
		r.fail(notFound(wire.CodeNoSuchRoute, "this process cannot reload"))
	}
	if r.err != nil {
		return nil, r.err
	}
	ctx, cancel := s.acting(r, reloadTimeout)
	defer cancel()
	changed, err := s.cfg.Reload(ctx)
	s.record(r, reloaded(changed), err)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	if changed == nil {
		changed = []string{}
	}
	return map[string]any{"changed": changed}, nil
}
