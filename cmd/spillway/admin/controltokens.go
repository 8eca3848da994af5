package admin

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/spillway-io/spillway/partition/control"
)

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
