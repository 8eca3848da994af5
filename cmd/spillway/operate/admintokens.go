package operate

import (
	"context"
	"fmt"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// AdminToken has the commands for tokens of the admin port that are made at run time.
type AdminToken struct {
	Create AdminTokenCreate `cmd:"" help:"Make a token of the admin port, with a role."`
	Ls     AdminTokenLs     `cmd:"" help:"List the tokens of the admin port."`
	Revoke AdminTokenRevoke `cmd:"" help:"End a token of the admin port."`
}

// AdminTokenCreate makes one.
type AdminTokenCreate struct {
	Connection `embed:""`
	output     `embed:""`

	Name string `arg:"" help:"Name that stands for it in the audit trail."`
	Role string `enum:"viewer,operator,admin" required:"" help:"What it may do: viewer reads; operator also pauses, replays and sees payloads; admin does everything."`
	Hash string `placeholder:"HASH" help:"Hash of a token that only you know: sha256:…, as printed by spillway token. Without one, the service makes a token."`
}

const adminPeople = "/api/v1/control/admin-tokens"

// Run makes it.
func (c *AdminTokenCreate) Run(ctx context.Context, s Streams) error {
	if err := checkHash(c.Hash); err != nil {
		return err
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	var made admin.CreatedToken
	raw, err := api.post(ctx, adminPeople, map[string]string{"name": c.Name, "role": c.Role, "hash": c.Hash}, &made)
	if err != nil {
		return err
	}
	return printToken(s, c.Output, made, raw)
}

// AdminTokenLs lists them.
type AdminTokenLs struct {
	Connection `embed:""`
	output     `embed:""`
}

// Run prints the list.
func (c *AdminTokenLs) Run(ctx context.Context, s Streams) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	var answer struct {
		Tokens []admin.AdminToken `json:"admin_tokens"`
	}
	if done, err := c.read(ctx, s, api, adminPeople, nil, &answer); done {
		return err
	}
	if len(answer.Tokens) == 0 {
		fmt.Fprintln(s.Err, "the admin port has no tokens: everybody who reaches it may do everything")
		return nil
	}
	t := newTable("NAME", "ROLE", "MADE", "BY")
	for _, a := range answer.Tokens {
		t.add(a.Name, a.Role, made(a.FromFile, a.CreatedAtMS), a.CreatedBy)
	}
	return t.print(s.Out)
}

// AdminTokenRevoke ends one.
type AdminTokenRevoke struct {
	Connection `embed:""`
	output     `embed:""`

	Name string `arg:"" help:"Its name."`
}

// Run ends it.
func (c *AdminTokenRevoke) Run(ctx context.Context, s Streams) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	return c.revoke(ctx, s, api, adminPeople+"/revoke", "name", c.Name)
}
