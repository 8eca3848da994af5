package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
)

// Whoever can write to Redis can write nonsense into the document. What is good stays in use.
func TestAGarbageEntryIsNotUsed(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	p.must(p.CreateTokenIn(ctx, namespace("mail"), token("", "secret")))
	hash := fmt.Sprintf("%x", control.HashToken("x"))
	const good = `{"kind":"queue","pool":"default","shards":1,"max_jobs":1,"max_queues":1,"dead":"keep","reply_ttl":"1m","created_ms":1}`
	garbage := map[string]string{
		"ns:nojson": "x", "ns:null": "null", "ns:two": good + good, "ns:newer": strings.Replace(good, `"shards"`, `"regions":2,"shards"`, 1),
		"ns:buffer": strings.Replace(good, "queue", "buffer", 1), "ns:shards": strings.Replace(good, `"shards":1`, `"shards":9999`, 1),
		"ns:-": good, "ns:": good, "ns:" + strings.Repeat("a", 65): good, "ns:pool": strings.Replace(good, `"default"`, `"none"`, 1),
		"ns:long": good[:len(good)-1] + strings.Repeat(" ", 20<<10) + "}", "ns:dead": strings.Replace(good, "keep", "eat", 1),
		"ns:ttl": strings.Replace(good, `"1m"`, `"1"`, 1), "other:x": "{}", "ns:deep": strings.Repeat("[", 10_000),
		"token:mail:short": `{"name":"x"}`, "token:mail:" + strings.ToUpper(hash): `{"name":"x"}`, "token:none:" + hash: `{"name":"x"}`,
		"token:mail:" + hash: `{"name":"x","text":"hidden-token"}`, "admin:" + hash: `{"name":"x","role":"god"}`,
		"token:mail:" + fmt.Sprintf("%x", control.HashToken("")): `{"name":"x"}`,
	}
	client := redistest.SharedClient(t)
	for name, value := range garbage {
		client.HSet(ctx, prefix+":{control}:doc", name, value)
	}
	client.HIncrBy(ctx, prefix+":{control}:doc", "version", 5)
	client.HSet(ctx, prefix+":{control}:doc", "floor", 5)
	p.must(p.Refresh(ctx))
	s := p.Snapshot()
	if len(s.Ignored) != len(garbage) {
		t.Errorf("%d entries are not used, want %d: %q", len(s.Ignored), len(garbage), s.Ignored)
	}
	if len(s.Namespaces()) != 3 || len(s.Tokens("mail")) != 1 || len(s.Admins()) != 1 {
		t.Errorf("got %v, %v, %v", s.Namespaces(), s.Tokens("mail"), s.Admins())
	}
	for _, line := range append(p.Warnings(), fmt.Sprint(p.logs.All())) {
		if strings.Contains(line, "hidden-token") || strings.Contains(line, hash) || len(line) > 400 && !strings.HasPrefix(line, "[") {
			t.Errorf("shows too much: %.500s", line)
		}
	}
	p.must(p.DeleteNamespace(ctx, "mail", nil)) // with its garbage
	p.must(p.DeleteNamespace(ctx, "nojson", nil))
	for name := range garbage {
		gone := strings.HasPrefix(name, "token:mail:") || name == "ns:nojson"
		if there := client.HExists(ctx, prefix+":{control}:doc", name).Val(); there == gone {
			t.Errorf("%s: there %v", name, there)
		}
	}
}

func TestAForeignDocumentIsToldAndLeftAlone(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	p.must(p.CreateNamespace(ctx, namespace("mail")))
	client := redistest.SharedClient(t)
	key := prefix + ":{control}:doc"
	client.Set(ctx, key, "foreign", 0)
	if err := p.Refresh(ctx); !errors.Is(err, backend.ErrBroken) {
		t.Errorf("refresh: got %v", err)
	}
	if err := p.CreateNamespace(ctx, namespace("other")); !errors.Is(err, backend.ErrBroken) {
		t.Errorf("create: got %v", err)
	}
	if p.Snapshot().Namespace("mail") == nil || client.Get(ctx, key).Val() != "foreign" {
		t.Error("the last copy is not in use, or the foreign value is gone")
	}
	if w := p.Warnings(); len(w) != 1 || !strings.Contains(w[0], "WRONGTYPE") || !strings.Contains(w[0], "RENAME") {
		t.Errorf("warnings %q", w)
	}
	other := prepare(t, url, prefix)
	other.must(other.Start(ctx)) // the namespaces of the file are served
}

func TestADocumentOfANewerVersionIsNotUsed(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	p.must(p.CreateNamespace(ctx, namespace("mail")))
	client := redistest.SharedClient(t)
	client.HSet(ctx, prefix+":{control}:doc", "format", 2, "version", 9)
	if err := p.Refresh(ctx); !errors.Is(err, backend.ErrIncompatible) {
		t.Errorf("refresh: got %v", err)
	}
	if err := p.DeleteNamespace(ctx, "mail", nil); !errors.Is(err, backend.ErrIncompatible) {
		t.Errorf("delete: got %v", err)
	}
	if w := p.Warnings(); p.Snapshot().Namespace("mail") == nil || len(w) != 1 || !strings.Contains(w[0], "update it") {
		t.Errorf("got %q", w)
	}
	if err := prepare(t, url, prefix).Start(ctx); !errors.Is(err, backend.ErrIncompatible) {
		t.Errorf("start: got %v", err)
	}
}

func TestValuesOutsideTheirBoundsAreRejected(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	p.must(p.CreateNamespace(ctx, namespace("mail")))
	ns := func(edit func(*control.Namespace)) error {
		n := namespace("x")
		edit(&n)
		return p.CreateNamespace(ctx, n)
	}
	tok := func(edit func(*control.Token)) error {
		made := token("mail", "x")
		edit(&made)
		return p.CreateToken(ctx, made)
	}
	limit := func(l control.Limit) error { return tok(func(t *control.Token) { t.Limit = &l }) }
	for want, err := range map[string]error{
		"name: ":      ns(func(n *control.Namespace) { n.Name = "{x}" }),
		"name: -":     ns(func(n *control.Namespace) { n.Name = "-x" }),
		"pool":        ns(func(n *control.Namespace) { n.Pool = "a b" }),
		"shards":      ns(func(n *control.Namespace) { n.Policy.Shards = 0 }),
		"max_jobs":    ns(func(n *control.Namespace) { n.Policy.MaxJobs = -1 }),
		"max_queues":  ns(func(n *control.Namespace) { n.Policy.MaxQueues = 1 << 40 }),
		"reply_ttl":   ns(func(n *control.Namespace) { n.Policy.ReplyTTL = 1 }),
		"description": ns(func(n *control.Namespace) { n.Description = strings.Repeat("x", 513) }),
		"created_by":  ns(func(n *control.Namespace) { n.CreatedBy = "\xff" }),
		"spread": ns(func(n *control.Namespace) {
			n.Policy.Shards, n.Policy.Spread = 2, map[string]int{}
			for i := range 33 {
				n.Policy.Spread[fmt.Sprint(i)] = 2
			}
		}),
		"hash":        tok(func(t *control.Token) { t.Hash = control.HashToken("") }),
		"token: ":     tok(func(t *control.Token) { t.Text = "another" }),
		"token: the ": tok(func(t *control.Token) { t.Text = "a b"; t.Hash = control.HashToken(t.Text) }),
		"produce":     tok(func(t *control.Token) { t.Produce = partition.Rate{Count: 5, Per: 7} }),
		"consume":     tok(func(t *control.Token) { t.Consume = partition.Rate{Count: -5, Per: 1e9} }),
		"read: -1":    limit(control.Limit{Read: -1, Write: 1, Interval: 1}),
		"read: 0":     limit(control.Limit{Interval: 1}),
		"interval":    limit(control.Limit{Read: 1}),
		"write":       limit(control.Limit{Write: 1 << 40, Interval: 1}),
		"role":        p.CreateAdmin(ctx, control.Admin{Name: "x", Role: "god", Hash: control.HashToken("x")}),
	} {
		var field *partition.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if v := p.Snapshot().Version; v != 1 {
		t.Errorf("something changed: version %d", v)
	}
}

func TestANamespaceHasSoManyTokens(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	p.must(p.CreateNamespace(ctx, namespace("mail")))
	client := redistest.SharedClient(t)
	for i := range control.MaxTokens {
		client.HSet(ctx, prefix+":{control}:doc", fmt.Sprintf("token:mail:%x", control.HashToken(fmt.Sprint(i))), fmt.Sprintf(`{"name":"t%d","created_ms":1}`, i))
	}
	client.HSet(ctx, prefix+":{control}:doc", "version", 2, "floor", 2)
	if err := p.CreateToken(ctx, token("mail", "one more")); !errors.Is(err, control.ErrTooMany) {
		t.Errorf("got %v", err)
	}
	if n := len(p.Snapshot().Tokens("mail")); n != control.MaxTokens {
		t.Errorf("%d tokens are in use", n)
	}
	p.must(p.DeleteNamespace(ctx, "mail", nil))
	if n := client.HLen(ctx, prefix+":{control}:doc").Val(); n > 6 {
		t.Errorf("%d fields are left", n)
	}
}
