package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// TokenCreate makes a token of a namespace of kind queue.
type TokenCreate struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace   string `arg:"" help:"The namespace, of kind queue."`
	Name        string `placeholder:"NAME" help:"Name that stands for it in lists and metrics. Without one, the first 8 digits of its hash."`
	Description string `placeholder:"TEXT" help:"Who has it, at most 512 bytes."`
	Produce     string `placeholder:"RATE" help:"Jobs that it may publish, over all processes: 5000/s, 1000/min or 20/h. Without one, no limit."`
	Consume     string `placeholder:"RATE" help:"Jobs that it may claim, over all processes. Without one, no limit."`
	Hash        string `placeholder:"HASH" help:"Hash of a token that only you know: sha256:…, as printed by spillway token. Without one, the service makes a token."`
}

// printToken shows a token. It goes to Out alone, so that a script can keep it.
func printToken(s Streams, form string, t admin.CreatedToken, raw json.RawMessage) error {
	if form == "json" {
		return printJSON(s.Out, raw)
	}
	var err error
	if t.Token != "" {
		_, err = fmt.Fprintf(s.Out, "token  %s\n", t.Token)
	}
	if err == nil {
		_, err = fmt.Fprintf(s.Out, "name   %s\nhash   %s\n", escape(t.Name), escape(t.Hash))
	}
	if err == nil && t.Token != "" {
		_, err = io.WriteString(s.Err, "The client sends the token (Authorization: Bearer). It is not shown again.\n")
	}
	return err
}

// Run makes it.
func (c *TokenCreate) Run(ctx context.Context, s Streams) error {
	if err := checkHash(c.Hash); err != nil {
		return err
	}
	api, path, err := c.openControl(c.Namespace)
	if err != nil {
		return err
	}
	var made admin.CreatedToken
	raw, err := api.post(ctx, path+"/tokens", map[string]string{
		"name": c.Name, "description": c.Description, "produce": c.Produce, "consume": c.Consume, "hash": c.Hash,
	}, &made)
	if err != nil {
		return err
	}
	return printToken(s, c.Output, made, raw)
}

// checkHash keeps a token that was given for its hash from being sent.
func checkHash(hash string) error {
	if hash != "" && !strings.HasPrefix(hash, "sha256:") {
		return usageError{errors.New("hash: want sha256: and 64 hex digits, as printed by spillway token, never the token itself")}
	}
	return nil
}

// TokenLs lists the tokens of a namespace.
type TokenLs struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
}

// Run prints the list.
func (c *TokenLs) Run(ctx context.Context, s Streams) error {
	api, path, err := c.openControl(c.Namespace)
	if err != nil {
		return err
	}
	var answer struct {
		Tokens []admin.QueueToken `json:"tokens"`
	}
	if done, err := c.read(ctx, s, api, path+"/tokens", nil, &answer); done {
		return err
	}
	if len(answer.Tokens) == 0 {
		fmt.Fprintf(s.Err, "%s has no tokens\n", c.Namespace)
		return nil
	}
	t := newTable("NAME", "PRODUCE", "CONSUME", "REQUESTS", "STORED AS", "MADE", "BY", "DESCRIPTION")
	for _, k := range answer.Tokens {
		limit, stored := "", "hash"
		if l := k.Limit; l != nil {
			limit = fmt.Sprintf("read %d, write %d in %ds", l.Read, l.Write, l.Interval)
		}
		if k.Readable {
			stored = "text"
		}
		t.add(k.Name, orNone(k.Produce.String()), orNone(k.Consume.String()), orNone(limit), stored, made(k.FromFile, k.CreatedAtMS), k.CreatedBy, k.Description)
	}
	return t.print(s.Out)
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// TokenRevoke ends a token.
type TokenRevoke struct {
	Connection `embed:""`
	output     `embed:""`

	Namespace string `arg:"" help:"The namespace, of kind queue."`
	Token     string `arg:"" help:"Name or hash of the token."`
}

// Run ends it.
func (c *TokenRevoke) Run(ctx context.Context, s Streams) error {
	api, path, err := c.openControl(c.Namespace)
	if err != nil {
		return err
	}
	return c.revoke(ctx, s, api, path+"/tokens/revoke", "token", c.Token)
}

// revoke ends what a route names by a key.
func (o *output) revoke(ctx context.Context, s Streams, api *client, path, key, which string) error {
	var done struct {
		Name string `json:"name"`
	}
	raw, err := api.post(ctx, path, map[string]string{key: which}, &done)
	if err != nil {
		return err
	}
	return o.print(s, raw, escape(done.Name)+": revoked; no process admits it a second from now")
}
