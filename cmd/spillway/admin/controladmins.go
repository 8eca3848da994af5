package admin

import (
	"github.com/spillway-io/spillway/partition/control"
)

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
