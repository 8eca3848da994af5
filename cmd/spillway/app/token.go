package app

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// tokenCmd creates a token and prints it with its hash. The token is not stored;
// the service is configured with the hash.
type tokenCmd struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// tokenPrefix lets people and secret scanners recognize a leaked token.
const tokenPrefix = "sw_"

func (c *tokenCmd) Run(p process) error {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails: the runtime ends the process instead
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	hash := formatHash(sha256.Sum256([]byte(token)))
	if c.Output == "json" {
		return json.NewEncoder(p.stdout).Encode(map[string]string{"token": token, "hash": hash})
	}
	_, err := fmt.Fprintf(p.stdout, "token  %s\nhash   %s\n", token, hash)
	if err == nil {
		_, err = fmt.Fprintln(p.stderr, "The client sends the token (Authorization: Bearer). It is not shown again. The hash goes into the configuration file: under tokens of a namespace, or admin_tokens.")
	}
	return err
}
