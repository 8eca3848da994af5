package admin

import (
	"cmp"
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

// verbs are the routes of the table of verbs, and of the verbs of this port.
func (s *Server) verbs() (all []route) {
	add := func(rows []*verb.Row, answer func(*request, *verb.Row) (any, error)) {
		for _, row := range rows {
			var needs Role
			if needs.UnmarshalText([]byte(row.Role)) == nil { // else it is of the data port alone
				all = append(all, route{row.Method() + " " + row.URL(), needs, func(r *request) (any, error) { return answer(r, row) }})
			}
		}
	}
	add(own, func(r *request, row *verb.Row) (any, error) { return s.verb(r, row, &verb.Call{}) })
	add(verb.Rows, s.ofQueues)
	add(verb.Controls, s.control)
	return all
}

// ofQueues answers a verb of the table.
func (s *Server) ofQueues(r *request, row *verb.Row) (any, error) {
	space := r.jobSpace()
	return s.verb(r, row, &verb.Call{
		Namespace: space.ns,
		Store:     space.store,
		Limits:    r.view.Limits,
		By:        r.who.name,
		Affords:   func(int) bool { return true },
		Spend:     func(int) error { return nil },
		Paced: func(ctx context.Context, read func() error) error {
			_, err := paced(ctx, s.observer.counts, func() (struct{}, error) { return struct{}{}, read() })
			return err
		},
		Counts: func(ctx context.Context, queue string) (job.Counts, error) {
			return paced(ctx, s.observer.single, func() (job.Counts, error) { return space.store.Counts(ctx, space.ns, queue) })
		},
		ByCause: func(ctx context.Context, a *job.DeadAct, cause string) (int, error) {
			return s.actByCause(ctx, a, space, causeOf(cause), r.view.MaskFields)
		},
		Mask: func(payload json.RawMessage) json.RawMessage { return payloadOf(payload, r.masks).Data },
	})
}

// read makes what a verb asks.
func (r *request) read(row *verb.Row) (ask any) {
	if row.JSON {
		ask = row.Ask()
		if row.Acts() {
			if of, ok := ask.(interface{ Default() }); ok {
				of.Default()
			}
			r.decode(ask)
		}
		if of, ok := ask.(interface{ Check() error }); ok {
			if err := of.Check(); err != nil {
				r.bad("%v", err)
			}
		}
		return ask
	}
	args := r.args(row)
	if r.masks = r.view.MaskFields; row.Masked {
		r.masks = r.server.masks(r)
		delete(args, "unmasked")
	}
	ask, err := row.Read(args, func(in, name string) string {
		if in == "header" {
			return r.Header.Get(name)
		}
		return r.PathValue(name)
	}, r.body)
	r.fail(err)
	return ask
}

// args are the parameters, with those in the body.
func (r *request) args(row *verb.Row) map[string]string {
	args := map[string]string{}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		r.bad("query: %v", err)
	}
	for name, values := range query {
		if args[name] = values[0]; len(values) > 1 {
			r.bad("%s: it is given twice", name)
		}
	}
	if row.HasBody() || len(r.body) == 0 && (r.Method != http.MethodPost || len(args) > 0) {
		return args
	}
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
	return args
}

// verb answers a verb. Those that count first run alone.
func (s *Server) verb(r *request, row *verb.Row, c *verb.Call) (any, error) {
	ask := r.read(row)
	if r.err != nil {
		return nil, r.err
	}
	a, counts := ask.(interface{ Approved() *verb.Approval })
	acts := row.Acts() && (!counts || !a.Approved().DryRun)
	do := func() (any, error) { return s.do(r, row, c, ask, acts) }
	switch {
	case !counts || !acts:
		return do()
	case a.Approved().Confirm == 0:
		return nil, badRequest("send dry_run=1, and then confirm= the count that it answers")
	}
	return s.exclusively(r, do)
}

// do runs a verb, and records an act that was not rejected.
func (s *Server) do(r *request, row *verb.Row, c *verb.Call, ask any, acts bool) (any, error) {
	answer, err := row.Do(context.WithValue(r.ctx, requestKey{}, r), c, ask)
	if !acts {
		return answer, endedInTime(r.ctx, answer, err)
	}
	if rejected := jobRejection(err); rejected != nil {
		if rejected.status == http.StatusBadRequest || rejected.status == http.StatusRequestEntityTooLarge || isAny(err, verb.ErrMore, job.ErrOtherKind) {
			return nil, rejected // it is no act
		}
		err = rejected // whose words the trail has
	} else if errors.As(err, &rejected) {
		return nil, err
	}
	act := r.act
	act.Action, act.Namespace = row.Name, r.PathValue("namespace")
	act.Queue = cmp.Or(act.Queue, r.PathValue("queue"))
	if of, ok := ask.(interface{ Detail() string }); ok {
		act.Detail = of.Detail()
	}
	if of, ok := answer.(interface{ Count() int64 }); ok {
		act.Entries = new(of.Count())
	}
	s.record(r, act, err)
	return answer, endedInTime(r.ctx, answer, err)
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
		return notFound(wire.CodeNoSuchRoute, jobs.NotOfPHP)
	}
	rejected := jobs.Reject(err)
	status := wire.Responses[rejected.Code].Status
	if status >= http.StatusInternalServerError {
		return nil
	}
	return &rejection{status, rejected.Code, rejected.Text()}
}
