package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
)

// Control is what the server needs to change namespaces and tokens at run time.
type Control interface {
	Snapshot() *control.Snapshot
	CreateNamespace(ctx context.Context, n control.Namespace) error
	DeleteNamespace(ctx context.Context, name string, empty func(context.Context) error) error
	CreateToken(ctx context.Context, t control.Token) error
	DeleteToken(ctx context.Context, namespace string, hash [sha256.Size]byte) error
	ChangeLimit(ctx context.Context, namespace string, hash [sha256.Size]byte, change func(now *control.Limit) (*control.Limit, error)) error
	CreateAdmin(ctx context.Context, a control.Admin) error
	DeleteAdmin(ctx context.Context, name string) error
}

// Queues are the jobs of one namespace.
type Queues interface {
	// Jobs is how many there are, in every state.
	Jobs(ctx context.Context) (int64, error)
	// Purge deletes all of them.
	Purge(ctx context.Context) (deleted int64, err error)
}

const (
	codeNoSuchToken wire.Code = "no_such_token"
	// controlTimeout bounds a change of the control document.
	controlTimeout = 10 * time.Second
)

// errFixed is why a process that has no control document changes nothing.
var errFixed = &refusal{http.StatusNotFound, wire.CodeNoSuchRoute, "this process has no namespaces and tokens but those of its configuration"}

// control is the control document, for a route that needs it.
func (r *request) control() (Control, error) {
	if r.view.Control == nil {
		return nil, errFixed
	}
	return r.view.Control, nil
}

// queues is the namespace of kind queue in the path.
func (r *request) queues() (Control, *control.Namespace, error) {
	c, err := r.control()
	if err != nil {
		return nil, nil, err
	}
	name := r.PathValue("namespace")
	if ns := c.Snapshot().Namespace(name); ns != nil {
		return c, ns, nil
	}
	if r.view.Store.Namespace(name) != nil {
		return nil, nil, &refusal{http.StatusNotFound, wire.CodeNoSuchRoute, "the namespace " + strconv.Quote(name) + " is of kind buffer: the configuration file has its settings and tokens"}
	}
	return nil, nil, &refusal{http.StatusNotFound, wire.CodeNoSuchNamespace, "there is no namespace " + strconv.Quote(name) + " of kind queue"}
}

// changed records an act, and turns the error of a change into an answer.
func (s *Server) changed(r *request, a Act, err error) error {
	var field *partition.FieldError
	switch {
	case errors.As(err, &field), errors.Is(err, control.ErrNoPool): // a mistake in the request is no act
		return badRequest(err.Error())
	case errors.Is(err, control.ErrExists), errors.Is(err, control.ErrInFile), errors.Is(err, control.ErrOpen), errors.Is(err, control.ErrTooMany), errors.Is(err, control.ErrConflict):
		err = &refusal{http.StatusConflict, codeConflict, err.Error()}
	case errors.Is(err, control.ErrNotFound) && a.Action == "delete_namespace":
		err = noNamespace(a.Namespace)
	case errors.Is(err, control.ErrNotFound):
		err = &refusal{http.StatusNotFound, codeNoSuchToken, err.Error()}
	case errors.Is(err, backend.ErrIncompatible):
		err = &refusal{http.StatusConflict, codeConflict, err.Error()}
	case errors.Is(err, backend.ErrUnknown):
		err = &refusal{http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store did not confirm: it may be done; list what there is, and then try again"}
	}
	s.record(r, a, err)
	return err
}
