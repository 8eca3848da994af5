package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// verbs are the routes of the table of verbs.
func (s *Server) verbs() (all []route) {
	for _, row := range verb.Rows {
		var needs Role
		if needs.UnmarshalText([]byte(row.Role)) != nil {
			continue // it is of the data port alone
		}
		all = append(all, route{row.Method() + " /api/v1/namespaces/{namespace}" + row.Path(), needs,
			func(r *request) (any, error) { return s.verb(r, row) }})
	}
	for _, row := range verb.Controls {
		var needs Role
		_ = needs.UnmarshalText([]byte(row.Role)) // every one has a role
		all = append(all, route{row.Method() + " /api/v1" + row.Path(), needs,
			func(r *request) (any, error) { return s.control(r, row) }})
	}
	return all
}

// verb answers a verb of the table.
func (s *Server) verb(r *request, row *verb.Row) (any, error) {
	space, masks, args := r.jobSpace(), []string(nil), map[string]string{}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		r.bad("query: %v", err)
	}
	for name, values := range query {
		if args[name] = values[0]; len(values) > 1 {
			r.bad("%s: it is given twice", name)
		}
	}
	if len(r.body) > 0 && !row.HasBody() {
		var object map[string]json.RawMessage
		r.decode(&object)
		for name, value := range object {
			if _, twice := args[name]; twice {
				r.bad("%s: it is given twice", name)
			}
			text := ""
			if json.Unmarshal(value, &text) != nil {
				text = string(value)
			}
			args[name] = text
		}
	}
	if row.Masked {
		masks = s.masks(r)
		delete(args, "unmasked")
	}
	if r.err != nil {
		return nil, r.err
	}
	ask, err := row.Read(args, func(in, name string) string {
		if in == "header" {
			return r.Header.Get(name)
		}
		return r.PathValue(name)
	}, r.body)
	if err != nil {
		return nil, err
	}
	c := &verb.Call{
		Namespace: space.ns,
		Store:     space.store,
		Limits:    r.view.Limits,
		By:        r.who.name,
		Affords:   func(int) bool { return true },
		Spend:     func(int) error { return nil },
		Counts: func(ctx context.Context, queue string) (job.Counts, error) {
			return paced(ctx, s.observer.single, func() (job.Counts, error) { return space.store.Counts(ctx, space.ns, queue) })
		},
		ByCause: func(ctx context.Context, a *job.DeadAct, cause string) (int, error) {
			return s.actByCause(ctx, a, space, causeOf(cause), r.view.MaskFields)
		},
		Mask: func(payload json.RawMessage) json.RawMessage { return payloadOf(payload, masks).Data },
	}
	a, counts := ask.(interface{ Approved() *verb.Approval })
	switch {
	case !row.Acts(), counts && a.Approved().DryRun:
		answer, err := row.Do(r.ctx, c, ask)
		return answer, endedInTime(r.ctx, answer, err)
	case !counts:
		return s.verbAct(r.ctx, r, row, c, ask)
	case a.Approved().Confirm == 0:
		return nil, badRequest("send dry_run=1, and then confirm= the count that it answers")
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) { return s.verbAct(ctx, r, row, c, ask) })
}

// verbAct does what changes something, and records it.
func (s *Server) verbAct(ctx context.Context, r *request, row *verb.Row, c *verb.Call, ask any) (any, error) {
	answer, err := row.Do(ctx, c, ask)
	if rejected := jobRejection(err); rejected != nil {
		if rejected.status == http.StatusBadRequest || rejected.status == http.StatusRequestEntityTooLarge || isAny(err, verb.ErrMore, job.ErrOtherKind) {
			return nil, rejected // it is no act
		}
		err = rejected // whose words the trail has
	}
	act := Act{Action: row.Name, Namespace: c.Namespace.Name, Queue: r.PathValue("queue")}
	if of, ok := ask.(interface{ Detail() string }); ok {
		act.Detail = of.Detail()
	}
	if of, ok := answer.(interface{ Count() int64 }); ok {
		act.Entries = new(of.Count())
	}
	s.record(r, act, err)
	return answer, endedInTime(ctx, answer, err)
}

// endedInTime is inTime, where the answer can say that it is not complete.
func endedInTime(ctx context.Context, answer any, err error) error {
	if of, ok := answer.(interface{ Partial() bool }); ok && of.Partial() {
		return inTime(ctx, err)
	}
	return err
}

// jobRejection answers what the store of queues says, as the data port does; nil: that it failed.
func jobRejection(err error) *rejection {
	switch {
	case err == nil:
		return nil
	case isAny(err, verb.ErrMore, job.ErrTooManyDelayed):
		return conflict("%v", err)
	case errors.Is(err, job.ErrOtherKind):
		return notFound(wire.CodeNoSuchRoute, "queues of PHP's have no schedules, traces, pauses or lists of jobs, and no jobs that are changed or prepared")
	}
	rejected := jobs.Reject(err)
	status := wire.Responses[rejected.Code].Status
	if status >= http.StatusInternalServerError {
		return nil
	}
	return &rejection{status, rejected.Code, rejected.Text()}
}
