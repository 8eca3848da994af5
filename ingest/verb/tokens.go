package verb

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

type hashed struct {
	Hash string `json:"hash" placeholder:"HASH" help:"Hash of a token that only you know: sha256:…, as printed by spillway token. Without one, the service makes a token."`
}

// Check keeps a token that was given for its hash from being sent, and shown.
func (h *hashed) Check() error {
	if _, ok := control.ParseHash(h.Hash); h.Hash != "" && !ok {
		return errors.New("hash: want sha256: and 64 hex digits, as printed by spillway token, never the token itself")
	}
	return nil
}

// token is the new token, or nothing and the hash of one.
func (h *hashed) token() (text string, hash [sha256.Size]byte) {
	if h.Hash == "" {
		text = control.NewToken()
		return text, control.HashToken(text)
	}
	hash, _ = control.ParseHash(h.Hash)
	return "", hash
}

// createdToken is the only answer that has a token.
type createdToken struct {
	Token string `json:"token" help:"Empty where the request had a hash."`
	Name  string `json:"name"`
	Hash  string `json:"hash"`
}

type createToken struct {
	inControl
	Name        string         `json:"name" placeholder:"NAME" help:"Name that stands for it in lists and metrics. Without one, the first 8 digits of its hash."`
	Description string         `json:"description" placeholder:"TEXT" help:"Who has it, at most 512 bytes."`
	Produce     partition.Rate `json:"produce" placeholder:"RATE" help:"Jobs that it may publish, over all processes: 5000/s, 1000/min or 20/h. Without one, no limit."`
	Consume     partition.Rate `json:"consume" placeholder:"RATE" help:"Jobs that it may claim, over all processes. Without one, no limit."`
	hashed
}

func makeToken(ctx context.Context, c *Control, q *createToken) (createdToken, error) {
	text, hash := q.token()
	t := control.Token{
		Namespace:   c.Namespace,
		Hash:        hash,
		Name:        cmp.Or(q.Name, control.ShortName(hash)),
		Description: q.Description,
		Produce:     q.Produce,
		Consume:     q.Consume,
		CreatedBy:   c.By,
	}
	c.Detail = "name " + t.Name
	return createdToken{text, t.Name, control.FormatHash(hash)}, c.CreateToken(ctx, t)
}

type madeToken struct {
	Name        string         `json:"name"`
	Hash        string         `json:"hash"`
	Description string         `json:"description"`
	Produce     partition.Rate `json:"produce"`
	Consume     partition.Rate `json:"consume"`
	Limit       *control.Limit `json:"limit" help:"Requests in interval seconds: read consume, write publish; 0 is no limit. Null: none."`
	Readable    bool           `json:"readable" help:"lmstfy's admin API made it, and lists it."`
	made
}

type tokenList struct {
	Tokens []madeToken `json:"tokens"`
}

func tokens(_ context.Context, c *Control, _ *inControl) (tokenList, error) {
	list := []madeToken{}
	for _, t := range c.Snapshot().Tokens(c.Namespace) {
		list = append(list, madeToken{
			t.Name,
			control.FormatHash(t.Hash),
			t.Description,
			t.Produce,
			t.Consume,
			t.Limit,
			t.Text != "",
			made{t.CreatedMS, t.CreatedBy, t.FromFile},
		})
	}
	return tokenList{list}, nil
}

type ofToken struct {
	inControl
	Token string `arg:"" json:"token" help:"Name or hash of the token."`
}

// find is the token that a request names.
func (q *ofToken) find(c *Control) (*control.Token, error) {
	hash, isHash := control.ParseHash(q.Token)
	for _, t := range c.Snapshot().Tokens(c.Namespace) {
		if t.Name == q.Token || isHash && t.Hash == hash {
			c.Detail = "name " + t.Name
			return t, nil
		}
	}
	return nil, fmt.Errorf("the namespace has no token of that name or hash: %w", control.ErrNotFound)
}

type revoked struct {
	Name string `json:"name"`
	Hash string `json:"hash,omitempty"`
}

func revokeToken(ctx context.Context, c *Control, q *ofToken) (revoked, error) {
	t, err := q.find(c)
	if err != nil {
		return revoked{}, err
	}
	return revoked{t.Name, control.FormatHash(t.Hash)}, c.DeleteToken(ctx, c.Namespace, t.Hash)
}

type limitToken struct {
	ofToken
	Limit *control.Limit `json:"limit" help:"Null: none."`
}

type limited struct {
	Name  string         `json:"name"`
	Limit *control.Limit `json:"limit"`
}

func setLimit(ctx context.Context, c *Control, q *limitToken) (limited, error) {
	t, err := q.find(c)
	if err != nil {
		return limited{}, err
	}
	if l := q.Limit; l == nil {
		c.Detail += ", none"
	} else {
		c.Detail += fmt.Sprintf(", read %d, write %d in %ds", l.Read, l.Write, l.Interval)
	}
	return limited{t.Name, q.Limit}, c.ChangeLimit(ctx, c.Namespace, t.Hash,
		func(*control.Limit) (*control.Limit, error) { return q.Limit, nil })
}

type ofAdmin struct {
	Name string `arg:"" json:"name" help:"Name that stands for it in the audit trail."`
}

type createAdmin struct {
	ofAdmin
	Role string `json:"role" enum:"viewer,operator,admin" required:"" help:"What it may do: viewer reads; operator also pauses, replays and sees payloads; admin does everything."`
	hashed
}

func makeAdmin(ctx context.Context, c *Control, q *createAdmin) (createdToken, error) {
	text, hash := q.token()
	c.Detail = "name " + q.Name + ", role " + q.Role
	return createdToken{text, q.Name, control.FormatHash(hash)},
		c.CreateAdmin(ctx, control.Admin{Name: q.Name, Role: q.Role, Hash: hash, CreatedBy: c.By})
}

type madeAdmin struct {
	Name string `json:"name"`
	Role string `json:"role"`
	made
}

type adminList struct {
	Tokens []madeAdmin `json:"admin_tokens"`
}

func admins(_ context.Context, c *Control, _ *struct{}) (adminList, error) {
	list := []madeAdmin{}
	for _, a := range c.Snapshot().Admins() {
		list = append(list, madeAdmin{a.Name, a.Role, made{a.CreatedMS, a.CreatedBy, a.FromFile}})
	}
	return adminList{list}, nil
}

func revokeAdmin(ctx context.Context, c *Control, q *ofAdmin) (revoked, error) {
	c.Detail = "name " + q.Name
	return revoked{Name: q.Name}, c.DeleteAdmin(ctx, q.Name)
}
