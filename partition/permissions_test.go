package partition_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// documentedRights are those of deploy/OPERATING.md, without name and password.
func documentedRights(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("../deploy/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`ACL SETUSER spillway on '>PASSWORD' ((?:[^\n]|\n        )+)`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("OPERATING.md shows no ACL SETUSER spillway")
	}
	return strings.Fields(strings.NewReplacer("'", "", "\\", "").Replace(m[1]))
}

func setUser(t testing.TB, server *redistest.Server, rights []string) {
	t.Helper()
	args := []any{"acl", "setuser", "spillway", "reset", "on", ">secret"}
	for _, right := range rights {
		args = append(args, right)
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

func userURL(addr string) string { return "redis://spillway:secret@" + addr }

// The rights that OPERATING.md lists are enough for everything a store does.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rights := documentedRights(t)
	rights[slices.Index(rights, "~sw:{*}*")] = "~*:{*}*" // the suite's prefixes are its own
	setUser(t, server, rights)
	runSuite(t, target{URL: userURL(server.Addr)})
	s := attend(t, userURL(server.Addr), nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	if _, err := s.Audit(t.Context(), s.ns); err != nil {
		t.Errorf("audit: %v", err)
	}
	server.Client().ScriptFlush(t.Context())
	if err := s.produce("kart", "x"); err != nil {
		t.Errorf("produce after a flush: %v", err)
	}
}

// A user that lacks any one of them is found before the first script runs: it
// would stop half way, and Redis does not roll back.
func TestAUserWithoutARightIsFoundBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := server.Client()
	rights := documentedRights(t)
	cases := map[string][]string{
		"keys of others":   append(slices.Clone(rights), "resetkeys", "~other:*"),
		"keys to read":     append(slices.Clone(rights), "resetkeys", "%R~sw:{*}*"),
		"the entries only": append(slices.Clone(rights), "resetkeys", "~sw:{*}:q:*"),
	}
	for _, right := range rights {
		// Connecting needs none of these here, WAIT only a setting.
		if name, ok := strings.CutPrefix(right, "+"); ok && !slices.Contains([]string{"ping", "select", "hello", "cluster|slots", "cluster|shards", "command", "wait", "readonly"}, name) {
			cases["without "+name] = append(slices.Clone(rights), "-"+name)
		}
	}
	if len(cases) < 25 {
		t.Fatalf("only %d cases: this proves nothing", len(cases))
	}
	for name, rights := range cases {
		setUser(t, server, rights)
		s := open(t, userURL(server.Addr), nil)
		if _, err := s.Check(t.Context()); !errors.Is(err, partition.ErrBroken) {
			t.Errorf("%s: check: got %v, want ErrBroken", name, err)
			continue
		} else if lacks, ok := strings.CutPrefix(name, "without "); ok && errors.Is(err, partition.ErrIncompatible) &&
			!strings.Contains(strings.ToLower(err.Error()), lacks) {
			t.Errorf("%s: %v does not name it", name, err)
		}
		if err := s.produce("kart", "x"); !errors.Is(err, partition.ErrBroken) {
			t.Errorf("%s: produce: got %v, want ErrBroken", name, err)
		}
		_ = s.Close()
		if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 0 {
			t.Fatalf("%s: keys were written: %v", name, keys)
		}
	}
	setUser(t, server, rights)
	if err := open(t, userURL(server.Addr), nil).produce("kart", "x"); err != nil {
		t.Errorf("with all of them: %v", err)
	}
}

// An operator should not have to start once for each right.
func TestAllMissingRightsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rights := documentedRights(t)
	for _, lacks := range [][]string{
		{"hset", "zadd", "scan"}, {"del", "zrem", "rpush", "hincrby"}, {"time", "set"}, {"info", "ltrim"}, {"eval", "lpop"}, {"script|load", "hget", "zcard"},
		{"eval", "evalsha", "time"},
	} {
		mine := slices.Clone(rights)
		for _, name := range lacks {
			mine = append(mine, "-"+name)
		}
		setUser(t, server, mine)
		s := open(t, userURL(server.Addr), nil)
		_, err := s.Check(t.Context())
		want := []string{"redis at " + server.Addr, "ACL SETUSER"}
		for _, name := range lacks {
			want = append(want, strings.ToUpper(name), "'+"+name+"'")
		}
		rejected(t, err, want...)
		if n := strings.Count(err.Error(), "'+"); n != len(lacks) {
			t.Errorf("without %v: %d rights are named: %v", lacks, n, err)
		}
		_ = s.Close()
		if keys := server.Client().Keys(t.Context(), "*").Val(); len(keys) != 0 {
			t.Fatalf("without %v keys were written: %v", lacks, keys)
		}
	}
	setUser(t, server, append(rights, "resetkeys", "~other:*"))
	_, err := open(t, userURL(server.Addr), nil).Check(t.Context())
	rejected(t, err, "on the keys sw:{*}*", "'~sw:{*}*'")
}

// An operator pastes the block into a shell.
func TestTheDocumentedACLBlockWorksAsPasted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)^    redis-cli ACL SETUSER(?:.*\\\n)*.*$`).FindString(string(text))
	if block == "" {
		t.Fatal("OPERATING.md shows no redis-cli ACL SETUSER")
	}
	server := redistest.Start(t)
	_, port, _ := net.SplitHostPort(server.Addr)
	pasted := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(block, "redis-cli", "redis-cli -p "+port, 1))
	if out, err := pasted.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "OK" {
		t.Fatalf("%v: %s", err, out)
	}
	s := open(t, "redis://spillway:PASSWORD@"+server.Addr, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.produce("kart", "x"); err != nil {
		t.Error(err)
	}
}

// On a Cluster rights belong to a server: the one that differs is found.
func TestTheUserOfEveryMasterIsLookedAt(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 3)
	rights := documentedRights(t)
	for i, server := range servers.Masters {
		if i == 2 {
			setUser(t, server, append(slices.Clone(rights), "-hset"))
			continue
		}
		setUser(t, server, rights)
	}
	url := strings.Replace(servers.URL(), "://", "://spillway:secret@", 1)
	s := open(t, url, func(p *partition.Policy) { p.Shards = 12 })
	_, err := s.Check(t.Context())
	rejected(t, err, "HSET", "ACL SETUSER")
	setUser(t, servers.Masters[2], rights)
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	servers.Masters[1].Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	_, err = s.Check(t.Context())
	rejected(t, err, "allkeys-lru", servers.Masters[1].Addr)
}

func TestCheckWarnsOfAServerThatCannotSave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	for _, rejection := range redistest.Rejections {
		if rejection.Word == "MISCONF" {
			rejection.Begin(t, server)
		}
	}
	if _, err := open(t, server.URL(), nil).Check(t.Context()); !errors.Is(err, partition.ErrUnavailable) {
		t.Errorf("a new store on a server that rejects writes: got %v, want ErrUnavailable", err)
	}
	server.Client().ConfigSet(t.Context(), "stop-writes-on-bgsave-error", "no")
	warnings, err := open(t, server.URL(), nil).Check(t.Context())
	if err != nil || !strings.Contains(strings.Join(warnings, "\n"), "last snapshot failed") {
		t.Errorf("got %q %v, want a warning of the snapshot", warnings, err)
	}
}

// A store that worked may be left on a server that rejects what it writes, or with fewer rights than it
// had: it says so, in Redis's own words, until it works again.
func TestCheckSaysThatAServerBeganToRejectWrites(t *testing.T) {
	t.Parallel()
	user := func(more ...string) func(testing.TB, *redistest.Server) {
		return func(tb testing.TB, server *redistest.Server) {
			rights := documentedRights(tb)
			rights[slices.Index(rights, "~sw:{*}*")] = "~*:{*}*"
			setUser(tb, server, append(rights, more...))
		}
	}
	denies := redistest.Rejection{Word: "RPUSH", Begin: user("-rpush"), End: user()}
	for _, rejection := range append(redistest.Rejections, denies) {
		t.Run(rejection.Word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			user()(t, server)
			s := open(t, userURL(server.Addr), nil)
			if _, err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			rejection.Begin(t, server)
			redistest.Until(t, patience, "the check says "+rejection.Word, func() bool {
				_, err := s.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), rejection.Word) && (errors.Is(err, backend.ErrRejectsWrites) || errors.Is(err, partition.ErrIncompatible))
			})
			rejection.End(t, server)
			redistest.Until(t, patience, "it works again", func() bool {
				_, err := s.Check(t.Context())
				return err == nil && s.produce("kart", "x") == nil
			})
		})
	}
}

func TestTheGlossaryExplainsTheTermsOfTheProject(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, ok := strings.Cut(string(doc), "\n// # Glossary\n")
	if !ok {
		t.Fatal("doc.go has no section Glossary")
	}
	for _, term := range []string{
		"namespace", "shard", "partition", "entry", "sequence", "capacity", "dead letter", "due", "batch", "linger", "range", "cut", "lease",
		"token", "claim", "commit", "release", "settle", "repair", "janitor", "lane", "zone", "headless list", "evicted", "expired", "lost",
		"reclaimed", "ledger", "residual",
	} {
		if !strings.Contains(glossary, "\n//\t"+term+"  ") {
			t.Errorf("the glossary does not explain %q", term)
		}
	}
}
