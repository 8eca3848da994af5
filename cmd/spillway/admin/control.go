package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

// AdminToken is a token of the admin port.
type AdminToken struct {
	Name        string `json:"name"`
	Role        string `json:"role"`
	CreatedAtMS int64  `json:"created_at_ms"`
	CreatedBy   string `json:"created_by"`
	FromFile    bool   `json:"from_file"`
}

// createAdmin is the request for one.
type createAdmin struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Hash string `json:"hash"` // of a token that only the caller knows; default: a new one is made
}

func (s *Server) adminTokens(r *request) (any, error) {
	c, err := r.control()
	if err != nil {
		return nil, err
	}
	list := []AdminToken{}
	for _, a := range c.Snapshot().Admins() {
		list = append(list, AdminToken{a.Name, a.Role, a.CreatedMS, a.CreatedBy, a.FromFile})
	}
	return map[string]any{"admin_tokens": list}, nil
}

func (s *Server) createAdmin(r *request) (any, error) {
	c, err := r.control()
	if err != nil {
		return nil, err
	}
	var body createAdmin
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	text, hash, err := newToken(body.Hash)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.acting(r, controlTimeout)
	defer cancel()
	act := Act{Action: "create_admin_token", Detail: "name " + body.Name + ", role " + body.Role}
	err = c.CreateAdmin(ctx, control.Admin{Name: body.Name, Role: body.Role, Hash: hash, CreatedBy: r.who.name})
	if err := s.changed(r, act, err); err != nil {
		return nil, err
	}
	return CreatedToken{text, body.Name, control.FormatHash(hash)}, nil
}

func (s *Server) revokeAdmin(r *request) (any, error) {
	c, err := r.control()
	if err != nil {
		return nil, err
	}
	var body struct {
		Name string `json:"name"`
	}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	ctx, cancel := s.acting(r, controlTimeout)
	defer cancel()
	if err := s.changed(r, Act{Action: "revoke_admin_token", Detail: "name " + body.Name}, c.DeleteAdmin(ctx, body.Name)); err != nil {
		return nil, err
	}
	return map[string]string{"name": body.Name}, nil
}

// QueueToken is a token of a namespace of kind queue. The token itself is never shown.
type QueueToken struct {
	Name        string         `json:"name"`
	Hash        string         `json:"hash"` // sha256: and 64 digits
	Description string         `json:"description"`
	Produce     control.Rate   `json:"produce"` // jobs, such as 1000/min; empty: no limit
	Consume     control.Rate   `json:"consume"`
	Limit       *control.Limit `json:"limit"`    // requests; null: none
	Readable    bool           `json:"readable"` // lmstfy's admin API made it, and shows it
	CreatedAtMS int64          `json:"created_at_ms"`
	CreatedBy   string         `json:"created_by"`
	FromFile    bool           `json:"from_file"`
}

// createToken is the request for one.
type createToken struct {
	Name        string       `json:"name"` // default: the first 8 digits of the hash
	Description string       `json:"description"`
	Produce     control.Rate `json:"produce"`
	Consume     control.Rate `json:"consume"`
	Hash        string       `json:"hash"` // of a token that only the caller knows; default: a new one is made
}

// CreatedToken is the only answer that has a token.
type CreatedToken struct {
	Token string `json:"token"` // empty where the request had a hash
	Name  string `json:"name"`
	Hash  string `json:"hash"`
}

// newToken is the token that a request asks for.
func newToken(hash string) (text string, sum [sha256.Size]byte, err error) {
	if hash == "" {
		text = control.NewToken()
		return text, control.HashToken(text), nil
	}
	sum, ok := control.ParseHash(hash)
	if !ok {
		// It is not shown: it may be the token itself.
		return "", sum, badRequest("hash: want sha256: and 64 hex digits, as printed by `spillway token`, never the token itself")
	}
	return "", sum, nil
}

func (s *Server) queueTokens(r *request) (any, error) {
	c, ns, err := r.queues()
	if err != nil {
		return nil, err
	}
	list := []QueueToken{}
	for _, t := range c.Snapshot().Tokens(ns.Name) {
		list = append(list, QueueToken{
			t.Name, control.FormatHash(t.Hash), t.Description, t.Produce, t.Consume, t.Limit, t.Text != "", t.CreatedMS, t.CreatedBy, t.FromFile,
		})
	}
	return map[string]any{"tokens": list}, nil
}

func (s *Server) createToken(r *request) (any, error) {
	c, ns, err := r.queues()
	if err != nil {
		return nil, err
	}
	var body createToken
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	text, hash, err := newToken(body.Hash)
	if err != nil {
		return nil, err
	}
	t := control.Token{
		Namespace: ns.Name, Hash: hash, Name: body.Name, Description: body.Description,
		Produce: body.Produce, Consume: body.Consume, CreatedBy: r.who.name,
	}
	if t.Name == "" {
		t.Name = control.ShortName(hash)
	}
	ctx, cancel := s.acting(r, controlTimeout)
	defer cancel()
	act := Act{Action: "create_token", Namespace: ns.Name, Detail: "name " + t.Name}
	if err := s.changed(r, act, c.CreateToken(ctx, t)); err != nil {
		return nil, err
	}
	return CreatedToken{text, t.Name, control.FormatHash(hash)}, nil
}

// tokenNamed finds a token by its name or its hash.
func tokenNamed(c Control, ns *control.Namespace, which string) (*control.Token, error) {
	hash, isHash := control.ParseHash(which)
	for _, t := range c.Snapshot().Tokens(ns.Name) {
		if t.Name == which || isHash && t.Hash == hash {
			return t, nil
		}
	}
	return nil, &refusal{http.StatusNotFound, codeNoSuchToken, "the namespace has no token of that name or hash"}
}

func (s *Server) revokeToken(r *request) (any, error) {
	c, ns, err := r.queues()
	if err != nil {
		return nil, err
	}
	var body struct {
		Token string `json:"token"`
	}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	t, err := tokenNamed(c, ns, body.Token)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.acting(r, controlTimeout)
	defer cancel()
	act := Act{Action: "revoke_token", Namespace: ns.Name, Detail: "name " + t.Name}
	if err := s.changed(r, act, c.DeleteToken(ctx, ns.Name, t.Hash)); err != nil {
		return nil, err
	}
	return map[string]string{"name": t.Name, "hash": control.FormatHash(t.Hash)}, nil
}

func (s *Server) limitToken(r *request) (any, error) {
	c, ns, err := r.queues()
	if err != nil {
		return nil, err
	}
	var body struct {
		Token string         `json:"token"`
		Limit *control.Limit `json:"limit"` // null: none
	}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	t, err := tokenNamed(c, ns, body.Token)
	if err != nil {
		return nil, err
	}
	act := Act{Action: "limit_token", Namespace: ns.Name, Detail: "name " + t.Name + ", none"}
	if l := body.Limit; l != nil {
		act.Detail = fmt.Sprintf("name %s, read %d, write %d in %ds", t.Name, l.Read, l.Write, l.Interval)
	}
	ctx, cancel := s.acting(r, controlTimeout)
	defer cancel()
	err = c.ChangeLimit(ctx, ns.Name, t.Hash, func(*control.Limit) (*control.Limit, error) { return body.Limit, nil })
	if err := s.changed(r, act, err); err != nil {
		return nil, err
	}
	return map[string]any{"name": t.Name, "limit": body.Limit}, nil
}
