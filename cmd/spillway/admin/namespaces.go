package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Build is the version of the program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go_version"`
}

// Info is what does not change while the process runs, and who asks.
type Info struct {
	Build
	Role        string     `json:"role"`
	StartedAtMS int64      `json:"started_at_ms"`
	NowMS       int64      `json:"now_ms"`
	Store       StoreState `json:"store"`
	You         You        `json:"you"`
	MaskFields  []string   `json:"mask_fields"`
	Namespaces  []string   `json:"namespaces" help:"Of partitions."`
	Queues      []string   `json:"queues" help:"Namespaces of kind queue."`
}

// You is who asks.
type You struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

func (s *Server) info(r *request, _ *struct{}) (Info, error) {
	i := Info{
		Build:       s.cfg.Build,
		Role:        r.view.Role,
		StartedAtMS: s.began.UnixMilli(),
		NowMS:       time.Now().UnixMilli(),
		Store:       s.store(r.view),
		You:         You{r.who.name, r.who.role.String()},
		MaskFields:  r.view.MaskFields,
		Namespaces:  []string{},
		Queues:      []string{},
	}
	if i.MaskFields == nil {
		i.MaskFields = []string{}
	}
	for _, ns := range r.view.Store.Namespaces() {
		i.Namespaces = append(i.Namespaces, ns.Name)
	}
	for _, space := range r.view.jobSpaces() {
		i.Queues = append(i.Queues, space.ns.Name)
	}
	return i, nil
}

const (
	readTimeout  = 5 * time.Second // of what one request reads from the store
	writeTimeout = 10 * time.Second
	auditTimeout = time.Minute // an audit counts every partition
)

// readyz says what is found of the store now.
func (s *Server) readyz(r *request) (any, error) {
	store := s.store(r.view)
	answer := struct {
		Status   string   `json:"status"`
		Degraded []string `json:"degraded,omitempty" help:"Codes of what the store cannot do now."`
		Warnings []string `json:"warnings,omitempty" help:"Only operators use this port, so they may name details of the store."`
	}{Status: "ok", Degraded: store.Degraded}
	var j judge
	j.store(store)
	for _, f := range j.found {
		if f.state == notReady {
			return nil, &rejection{http.StatusServiceUnavailable, wire.CodeNotReady, f.Why}
		}
		answer.Warnings = append(answer.Warnings, cmp.Or(f.Why, f.What))
	}
	return answer, nil
}

// NamespaceList is every namespace.
type NamespaceList struct {
	Namespaces []json.RawMessage `json:"namespaces" help:"Name, kind and settings of each."`
}

func (s *Server) namespaces(r *request, _ *struct{}) (NamespaceList, error) {
	list := []json.RawMessage{}
	for _, ns := range r.view.Store.Namespaces() {
		list = append(list, namespaceJSON(ns.Name, kindBuffer, r.view.Settings[ns.Name]))
	}
	for _, space := range r.view.jobSpaces() {
		list = append(list, namespaceJSON(space.ns.Name, kindOf(space.ns), policySettings(space.ns)))
	}
	return NamespaceList{list}, nil
}

// namespaceJSON is the name of a namespace, its kind and its settings, under the keys of the
// configuration. Durations are whole milliseconds, under a key that ends with _ms.
func namespaceJSON(name, kind string, settings []Setting) json.RawMessage {
	object := fmt.Appendf(nil, `{"namespace":%q,"kind":%q`, name, kind)
	for _, s := range settings {
		key, value := s.Key, s.Value
		if d, ok := value.(time.Duration); ok {
			key, value = key+"_ms", d.Milliseconds()
		}
		text, _ := json.Marshal(value) // strings and numbers only
		object = fmt.Appendf(object, `,%q:%s`, key, text)
	}
	return append(object, '}')
}

// Account is the answer about one namespace. Residual is set when the request
// asks for an audit: the difference between the ledger's buffered and a count of
// the entries. It is 0 unless entries moved during the count.
type Account struct {
	account
	Residual *int64 `json:"residual,omitempty"`
}

// account is what the store says of a namespace of partitions.
type account struct {
	Namespace string `json:"namespace"`
	partition.Overview
	OverdueMS        int64  `json:"overdue_ms" help:"Of the partition that has been due for longest."`
	Paused           *Pause `json:"paused"`
	PausedPartitions int64  `json:"paused_partitions"`
}

func accountOf(ns *partition.Namespace, o partition.Overview) account {
	return account{ns.Name, o, o.Overdue.Milliseconds(), pauseOf(o.Paused), o.PausedPartitions}
}

type audited struct {
	Audit bool `help:"Also count every entry or job; residual is the difference from the ledger."`
}

type ofNamespace struct {
	Namespace string `arg:"" help:"The namespace."`
	audited
}

func (s *Server) account(r *request, q *ofNamespace) (any, error) {
	if space, ok := r.view.jobSpace(r.PathValue("namespace")); ok {
		return s.queueAccount(r, q.Audit, space)
	}
	ns := r.namespace()
	if r.err != nil {
		return nil, r.err
	}
	o, err := r.view.Store.Overview(r.ctx, ns)
	if err != nil {
		return nil, err
	}
	answer := Account{account: accountOf(ns, o)}
	if q.Audit {
		answer.Residual, err = s.residual(r, ns.Name)
	}
	return answer, err
}

// audits is how often a residual must be the same: entries that move while they are counted make one that
// changes.
const audits = 3

// residual is what an audit of a namespace finds.
func (s *Server) residual(r *request, namespace string) (*int64, error) {
	ctx, cancel := context.WithTimeout(r.Context(), auditTimeout)
	defer cancel()
	audit := func() (int64, error) { return r.view.Store.Audit(ctx, r.view.Store.Namespace(namespace)) }
	if space, queues := r.view.jobSpace(namespace); queues {
		audit = func() (int64, error) { return space.store.Audit(ctx, space.ns) }
	}
	var first int64
	for i := range audits {
		// One at a time, with rests: a viewer may ask for any number.
		n, err := paced(ctx, s.observer.audits, audit)
		if i == 0 {
			first = n
		}
		if err != nil || n == 0 || n != first {
			return new(int64), err
		}
	}
	return &first, nil
}

// paced is what f returns once it is its turn.
func paced[T any](ctx context.Context, pace *backend.Pace,
	f func() (T, error)) (result T, err error) {
	waited := pace.Do(ctx, func(context.Context) { result, err = f() })
	return result, cmp.Or(waited, err)
}
