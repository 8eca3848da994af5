package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// tokenCmd makes a token. It is shown once and kept nowhere; the service is
// given its hash.
type tokenCmd struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"Form: text or json."`
}

// tokenPrefix lets people and scanners tell what a leaked string is.
const tokenPrefix = "sw_"

func (c *tokenCmd) Run(p process) error {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails: without randomness the process ends
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	hash := formatHash(sha256.Sum256([]byte(token)))
	if c.Output == "json" {
		return json.NewEncoder(p.stdout).Encode(map[string]string{"token": token, "hash": hash})
	}
	_, err := fmt.Fprintf(p.stdout, "token  %s\nhash   %s\n", token, hash)
	if err == nil {
		_, err = fmt.Fprintln(p.stderr, "The token is for the client (Authorization: Bearer) and is not shown again; the hash is for the file.")
	}
	return err
}
