//go:build sinks

package nats

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/spillway-io/spillway/drain/sink"
)

// identity is an operator, an account or a user: a pair of keys.
type identity struct {
	t    testing.TB
	keys nkeys.KeyPair
}

func newIdentity(t testing.TB, create func() (nkeys.KeyPair, error)) identity {
	t.Helper()
	keys, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return identity{t, keys}
}

func (i identity) public() string {
	i.t.Helper()
	key, err := i.keys.PublicKey()
	if err != nil {
		i.t.Fatal(err)
	}
	return key
}

// vouch is the JWT by which i vouches for another; claims say what that one is and may do.
func (i identity) vouch(other identity, claims map[string]any) string {
	i.t.Helper()
	claims["version"] = 2
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			i.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"typ": "JWT", "alg": "ed25519-nkey"}) + "." +
		part(map[string]any{"jti": other.public(), "iat": 1763629675, "iss": i.public(), "sub": other.public(), "name": "test", "nats": claims})
	signature, err := i.keys.Sign([]byte(text))
	if err != nil {
		i.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// credentials writes a file as nsc does: the user's JWT and its seed.
func (i identity) credentials(dir string, user identity) string {
	i.t.Helper()
	seed, err := user.keys.Seed()
	if err != nil {
		i.t.Fatal(err)
	}
	unlimited := map[string]any{"type": "user", "subs": -1, "data": -1, "payload": -1}
	text := fmt.Sprintf("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n"+
		"-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", i.vouch(user, unlimited), seed)
	file := filepath.Join(dir, user.public()+".creds")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

func TestAUserOfAnOperatorsAccountPublishesByItsCredentials(t *testing.T) {
	t.Parallel()
	operator, system := newIdentity(t, nkeys.CreateOperator), newIdentity(t, nkeys.CreateAccount)
	account, stranger := newIdentity(t, nkeys.CreateAccount), newIdentity(t, nkeys.CreateAccount)
	limits := map[string]any{"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": true}
	withStreams := map[string]any{"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
	for name, value := range limits {
		withStreams[name] = value
	}
	server := startServer(t, "operator: "+operator.vouch(operator, map[string]any{"type": "operator"}), "system_account: "+system.public(),
		fmt.Sprintf("resolver: MEMORY\nresolver_preload: {%s: %s\n%s: %s}",
			account.public(), operator.vouch(account, map[string]any{"type": "account", "limits": withStreams}),
			system.public(), operator.vouch(system, map[string]any{"type": "account", "limits": limits})))
	dir := t.TempDir()
	file := account.credentials(dir, newIdentity(t, nkeys.CreateUser))
	makeStream(t, server.client(nats.UserCredentials(file)), jetstream.StreamConfig{})
	s := open(t, server, "events.{partition}?creds="+file)
	if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 3)}); err != nil {
		t.Error(err)
	}
	other := newSink(t, server, "", "events.all?creds="+stranger.credentials(dir, newIdentity(t, nkeys.CreateUser)))
	if err := other.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
		t.Errorf("a user of another operator: got %v", err)
	}
	if err := newSink(t, server, "", "events.all").Open(t.Context()); err == nil {
		t.Error("nobody was let in")
	}
	gone := newSink(t, server, "", "events.all?creds="+file)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := gone.Open(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a file that went away: got %v, want its name", err)
	}
}
