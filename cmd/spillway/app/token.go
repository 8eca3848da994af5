package app

import (
	"encoding/json"
	"fmt"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/cmd/spillway/operate"
	"github.com/spillway-io/spillway/partition/control"
)

// tokenCmd has the commands for tokens. Without one of them it prints a new token.
type tokenCmd struct {
	New    newTokenCmd         `cmd:"" default:"withargs" help:"Print a new token and the hash of it that goes into the configuration. No service is asked."`
	Create operate.TokenCreate `cmd:"" help:"Make a token of a namespace of kind queue in a running service. Every process admits it within a second."`
	Ls     operate.TokenLs     `cmd:"" help:"List the tokens of a namespace of kind queue."`
	Revoke operate.TokenRevoke `cmd:"" help:"End a token that was made at run time. No process admits it a second later."`
}

// newTokenCmd creates a token and prints it with its hash. The token is not stored; the
// service is configured with the hash.
type newTokenCmd struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

func (c *newTokenCmd) Run(p config.Process) error {
	token := control.NewToken()
	hash := config.FormatHash(control.HashToken(token))
	if c.Output == "json" {
		return json.NewEncoder(p.Stdout).Encode(map[string]string{"token": token, "hash": hash})
	}
	_, err := fmt.Fprintf(p.Stdout, "token  %s\nhash   %s\n", token, hash)
	if err == nil {
		_, err = fmt.Fprintln(p.Stderr, "The client sends the token (Authorization: Bearer). It is not shown again. The hash goes into the configuration file: under tokens of a namespace, or admin_tokens.")
	}
	return err
}
