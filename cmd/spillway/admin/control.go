package admin

import (
	"errors"

	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
)

const (
	codeNoSuchToken wire.Code = "no_such_token"
	codeNoSuchRule  wire.Code = "no_such_rule"
)

// errFixed is why a process that has no control document changes nothing.
var errFixed = notFound(wire.CodeNoSuchRoute,
	"this process has no namespaces and tokens but those of its configuration")

// control answers a verb of what is made at run time.
func (s *Server) control(r *request, row *verb.Row) (any, error) {
	if r.view.Control == nil {
		return nil, errFixed
	}
	c := &verb.Control{Control: r.view.Control, By: r.who.name}
	if name := r.PathValue("namespace"); name != "" {
		c.Of = c.Snapshot().Namespace(name)
		switch {
		case c.Of != nil:
			c.Namespace, c.Jobs = name, r.view.Queues(name)
		case r.view.Store.Namespace(name) != nil:
			return nil, notHere(name, kindBuffer, ": the configuration file has its settings and tokens")
		default:
			return nil, notFound(wire.CodeNoSuchNamespace, "there is no namespace %q of kind queue", name)
		}
	}
	ask := r.read(row)
	if r.err != nil {
		return nil, r.err
	}
	act := func() (any, error) {
		answer, err := row.Do(r.ctx, &verb.Call{Control: c}, ask)
		return answer, s.controlled(r, row.Name, c, err)
	}
	if row.Confirm != "" {
		return s.exclusively(r, act)
	}
	return act()
}

// controlled is the error that answers a verb. If that acted, it is recorded.
func (s *Server) controlled(r *request, action string, c *verb.Control, err error) error {
	var field *partition.FieldError
	switch {
	case errors.As(err, &field), errors.Is(err, control.ErrNoPool): // a mistake in the request is no act
		return badRequest("%v", err)
	case isAny(err, control.ErrExists, control.ErrInFile, control.ErrOpen, control.ErrTooMany, control.ErrConflict,
		backend.ErrIncompatible, verb.ErrHas):
		err = conflict("%v", err)
	case errors.Is(err, control.ErrNotFound) && action == "delete_namespace":
		err = noNamespace(c.Namespace)
	case errors.Is(err, control.ErrNotFound) && action == "delete_rule":
		err = notFound(codeNoSuchRule, "%v", err)
	case errors.Is(err, control.ErrNotFound):
		err = notFound(codeNoSuchToken, "%v", err)
	case errors.Is(err, backend.ErrUnknown):
		err = unavailable("the store did not confirm: it may be done; list what there is, and then try again")
	}
	if c.Detail != "" {
		s.record(r, Act{Action: action, Namespace: c.Namespace, Detail: c.Detail, Entries: c.Entries}, err)
	}
	return err
}
