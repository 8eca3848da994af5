package app

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/control"
)

const queuesFile = `
admin_token: "%[1]s"
pools: {default: {volatile: true}}
admin_tokens: [{name: bob, role: viewer, hash: "%[2]s"}]
namespaces:
  events: {sink: "null:"}
  mail: {kind: queue, shards: 2, tokens: [{hash: "%[3]s", name: crm, produce: 1000/min}]}
  open: {kind: queue}
`

func TestTheFileTakesPrecedenceOverWhatIsMadeAtRunTime(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, fmt.Sprintf(queuesFile, hashText("root"), hashText("bob"), hashText("crm")))
	if err != nil {
		t.Fatal(err)
	}
	admins, err := c.AdminAccess()
	if err != nil {
		t.Fatal(err)
	}
	f := controlFile(c, admins)
	if len(f.Namespaces) != 2 || f.Namespaces[0].Name != "mail" || f.Namespaces[0].Pool != "default" || f.Namespaces[0].Policy.Shards != 2 {
		t.Errorf("got namespaces %+v", f.Namespaces)
	}
	if fmt.Sprint(f.Buffers, f.Open, f.Pools, f.Volatile) != "[events] [open] [default] [default]" {
		t.Errorf("got %v %v %v %v", f.Buffers, f.Open, f.Pools, f.Volatile)
	}
	if len(f.Tokens) != 1 || f.Tokens[0].Namespace != "mail" || f.Tokens[0].Produce.String() != "1000/min" {
		t.Errorf("got tokens %+v", f.Tokens)
	}
	if len(f.Admins) != 2 || f.Admins[0].Role != "admin" || f.Admins[1].Name != "bob" || f.Admins[1].Role != "viewer" {
		t.Errorf("got admins %+v", f.Admins)
	}
	reg := newRegistry()
	ctl := control.Open("sw", reg, zap.NewNop())
	s := ctl.Preview(f)
	if tokens := adminTokens(s); len(tokens) != 2 || tokens[0] != admins[0] || tokens[1] != admins[1] {
		t.Errorf("got %+v, want %+v", tokens, admins)
	}
	in := ingest.Config{Tokens: map[string][]ingest.Token{}}
	addQueueTokens(&in, s)
	if _, known := in.Tokens["open"]; !known || len(in.Tokens["open"]) != 0 || len(in.Closed) != 0 {
		t.Errorf("an open namespace of the file: got %v, closed %v", in.Tokens, in.Closed)
	}
	if mail := in.Tokens["mail"]; len(mail) != 1 || mail[0].Name != "crm" || mail[0].Limiters.Produce == nil {
		t.Errorf("got %+v", mail)
	}
	if p := policiesOf(s, "default"); len(p) != 2 || p["mail"].Shards != 2 || len(policiesOf(s, "fast")) != 0 {
		t.Errorf("got %+v", p)
	}
}
