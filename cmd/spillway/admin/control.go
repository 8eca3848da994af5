package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

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
	ChangeLimit(ctx context.Context, namespace string, hash [sha256.Size]byte,
		change func(now *control.Limit) (*control.Limit, error)) error
	PutRule(ctx context.Context, r control.Rule) error
	DeleteRule(ctx context.Context, namespace, match string) error
	CreateAdmin(ctx context.Context, a control.Admin) error
	DeleteAdmin(ctx context.Context, name string) error
}

// Queues are the jobs of one namespace.
type Queues interface {
	// Jobs is how many there are, in every state.
	Jobs(ctx context.Context) (int64, error)
	// Schedules is how many it has.
	Schedules(ctx context.Context) (int64, error)
	// Purge deletes all jobs and schedules.
	Purge(ctx context.Context) (deleted int64, err error)
}

const (
	codeNoSuchToken wire.Code = "no_such_token"
	codeNoSuchRule  wire.Code = "no_such_rule"
)

// errFixed is why a process that has no control document changes nothing.
var errFixed = notFound(wire.CodeNoSuchRoute,
	"this process has no namespaces and tokens but those of its configuration")

// control is the control document, for a route that needs it.
func (r *request) control() Control {
	if r.view.Control == nil {
		r.fail(errFixed)
	}
	return r.view.Control
}

// queues is the namespace of kind queue in the path.
func (r *request) queues() (c Control, ns *control.Namespace) {
	if c = r.control(); c == nil {
		return nil, nil
	}
	name := r.PathValue("namespace")
	if ns = c.Snapshot().Namespace(name); ns != nil {
		return c, ns
	}
	if r.view.Store.Namespace(name) != nil {
		r.fail(notHere(name, kindBuffer, ": the configuration file has its settings and tokens"))
	}
	r.fail(notFound(wire.CodeNoSuchNamespace, "there is no namespace %q of kind queue", name))
	return nil, nil
}

// changed records an act, and returns the answer to it, which is done without an error of the
// change.
func (s *Server) changed(r *request, a Act, err error, done any) (any, error) {
	var field *partition.FieldError
	switch {
	case errors.As(err, &field), errors.Is(err, control.ErrNoPool): // a mistake in the request is no act
		return nil, badRequest("%v", err)
	case isAny(err, control.ErrExists, control.ErrInFile, control.ErrOpen, control.ErrTooMany, control.ErrConflict,
		backend.ErrIncompatible):
		err = conflict("%v", err)
	case errors.Is(err, control.ErrNotFound) && a.Action == "delete_namespace":
		err = noNamespace(a.Namespace)
	case errors.Is(err, control.ErrNotFound) && a.Action == "delete_rule":
		err = notFound(codeNoSuchRule, "%v", err)
	case errors.Is(err, control.ErrNotFound):
		err = notFound(codeNoSuchToken, "%v", err)
	case errors.Is(err, backend.ErrUnknown):
		err = unavailable("the store did not confirm: it may be done; list what there is, and then try again")
	}
	s.record(r, a, err)
	return done, err
}

// AdminToken is a token of the admin port.
type AdminToken struct {
	Name        string `json:"name"`
	Role        string `json:"role"`
	CreatedAtMS int64  `json:"created_at_ms"`
	CreatedBy   string `json:"created_by"`
	FromFile    bool   `json:"from_file"`
}

// CreateAdmin is the request for one.
type CreateAdmin struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Hash string `json:"hash"` // of a token that only the caller knows; default: a new one is made
}

func (s *Server) adminTokens(r *request) (any, error) {
	c, list := r.control(), []AdminToken{}
	if r.err != nil {
		return nil, r.err
	}
	for _, a := range c.Snapshot().Admins() {
		list = append(list, AdminToken{a.Name, a.Role, a.CreatedMS, a.CreatedBy, a.FromFile})
	}
	return map[string]any{"admin_tokens": list}, nil
}

func (s *Server) createAdmin(r *request) (any, error) {
	var body CreateAdmin
	c := r.control()
	r.decode(&body)
	text, hash := r.newToken(body.Hash)
	if r.err != nil {
		return nil, r.err
	}
	act := Act{Action: "create_admin_token", Detail: "name " + body.Name + ", role " + body.Role}
	err := c.CreateAdmin(r.ctx, control.Admin{
		Name:      body.Name,
		Role:      body.Role,
		Hash:      hash,
		CreatedBy: r.who.name,
	})
	return s.changed(r, act, err, CreatedToken{text, body.Name, control.FormatHash(hash)})
}

func (s *Server) revokeAdmin(r *request) (any, error) {
	var body struct {
		Name string `json:"name"`
	}
	c := r.control()
	if r.decode(&body); r.err != nil {
		return nil, r.err
	}
	return s.changed(r, Act{Action: "revoke_admin_token", Detail: "name " + body.Name},
		c.DeleteAdmin(r.ctx, body.Name), body)
}

// QueueToken is a token of a namespace of kind queue. The token itself is never shown.
type QueueToken struct {
	Name        string         `json:"name"`
	Hash        string         `json:"hash"` // sha256: and 64 digits
	Description string         `json:"description"`
	Produce     partition.Rate `json:"produce"` // jobs, such as 1000/min; empty: no limit
	Consume     partition.Rate `json:"consume"`
	Limit       *control.Limit `json:"limit"`    // requests; null: none
	Readable    bool           `json:"readable"` // lmstfy's admin API made it, and shows it
	CreatedAtMS int64          `json:"created_at_ms"`
	CreatedBy   string         `json:"created_by"`
	FromFile    bool           `json:"from_file"`
}

// CreateToken is the request for one.
type CreateToken struct {
	Name        string         `json:"name"` // default: the first 8 digits of the hash
	Description string         `json:"description"`
	Produce     partition.Rate `json:"produce"`
	Consume     partition.Rate `json:"consume"`
	Hash        string         `json:"hash"` // of a token that only the caller knows; default: a new one is made
}

// CreatedToken is the only answer that has a token.
type CreatedToken struct {
	Token string `json:"token"` // empty where the request had a hash
	Name  string `json:"name"`
	Hash  string `json:"hash"`
}

// newToken is the token that a request asks for.
func (r *request) newToken(hash string) (text string, sum [sha256.Size]byte) {
	if hash == "" {
		text = control.NewToken()
		return text, control.HashToken(text)
	}
	sum, ok := control.ParseHash(hash)
	if !ok {
		// It is not shown: it may be the token itself.
		r.bad("hash: want sha256: and 64 hex digits, as printed by `spillway token`, never the token itself")
	}
	return "", sum
}

func (s *Server) queueTokens(r *request) (any, error) {
	c, ns := r.queues()
	if r.err != nil {
		return nil, r.err
	}
	list := []QueueToken{}
	for _, t := range c.Snapshot().Tokens(ns.Name) {
		list = append(list, QueueToken{
			t.Name,
			control.FormatHash(t.Hash),
			t.Description,
			t.Produce,
			t.Consume,
			t.Limit,
			t.Text != "",
			t.CreatedMS,
			t.CreatedBy,
			t.FromFile,
		})
	}
	return map[string]any{"tokens": list}, nil
}

func (s *Server) createToken(r *request) (any, error) {
	var body CreateToken
	c, ns := r.queues()
	r.decode(&body)
	text, hash := r.newToken(body.Hash)
	if r.err != nil {
		return nil, r.err
	}
	t := control.Token{
		Namespace:   ns.Name,
		Hash:        hash,
		Name:        cmp.Or(body.Name, control.ShortName(hash)),
		Description: body.Description,
		Produce:     body.Produce,
		Consume:     body.Consume,
		CreatedBy:   r.who.name,
	}
	act := Act{Action: "create_token", Namespace: ns.Name, Detail: "name " + t.Name}
	return s.changed(r, act, c.CreateToken(r.ctx, t), CreatedToken{text, t.Name, control.FormatHash(hash)})
}

// tokenNamed decodes the request, and finds the token that it names by its name or its hash.
func (r *request) tokenNamed(body any, which *string) (c Control, t *control.Token) {
	c, ns := r.queues()
	if r.decode(body); r.err != nil {
		return c, nil
	}
	hash, isHash := control.ParseHash(*which)
	for _, t := range c.Snapshot().Tokens(ns.Name) {
		if t.Name == *which || isHash && t.Hash == hash {
			return c, t
		}
	}
	r.fail(notFound(codeNoSuchToken, "the namespace has no token of that name or hash"))
	return c, nil
}

func (s *Server) revokeToken(r *request) (any, error) {
	var body struct {
		Token string `json:"token"`
	}
	c, t := r.tokenNamed(&body, &body.Token)
	if r.err != nil {
		return nil, r.err
	}
	act := Act{Action: "revoke_token", Namespace: t.Namespace, Detail: "name " + t.Name}
	return s.changed(r, act, c.DeleteToken(r.ctx, t.Namespace, t.Hash),
		map[string]string{"name": t.Name, "hash": control.FormatHash(t.Hash)})
}

func (s *Server) limitToken(r *request) (any, error) {
	var body struct {
		Token string         `json:"token"`
		Limit *control.Limit `json:"limit"` // null: none
	}
	c, t := r.tokenNamed(&body, &body.Token)
	if r.err != nil {
		return nil, r.err
	}
	act := Act{Action: "limit_token", Namespace: t.Namespace, Detail: "name " + t.Name + ", none"}
	if l := body.Limit; l != nil {
		act.Detail = fmt.Sprintf("name %s, read %d, write %d in %ds", t.Name, l.Read, l.Write, l.Interval)
	}
	err := c.ChangeLimit(r.ctx, t.Namespace, t.Hash,
		func(*control.Limit) (*control.Limit, error) { return body.Limit, nil })
	return s.changed(r, act, err, map[string]any{"name": t.Name, "limit": body.Limit})
}
