package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
)

func namespace(t testing.TB, name string, shards int) *job.Namespace {
	t.Helper()
	p := job.DefaultPolicy()
	p.Shards = shards
	ns, err := job.NewNamespace("sw", name, p)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func TestAnIDTellsItsJob(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "mail", 1024)
	r := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
	for range 1000 {
		want := job.Ref{Shard: r.IntN(1024), Seq: 1 + r.Int64N(1<<52), CallerID: []string{"", "a", "order-1_A", strings.Repeat("z", 64)}[r.IntN(4)]}
		id := ns.ID(want.Shard, "q", want.Seq, want.CallerID)
		if got, ok := ns.ParseID("q", id); !ok || got != want {
			t.Fatalf("%s: got %+v %v, want %+v", id, got, ok, want)
		}
		if !partition.ValidQueue(id) || !job.IsReplyQueue(id) {
			t.Fatalf("%s is no name of a reply queue", id)
		}
	}
}

func TestIDsAreInTheOrderOfSequences(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "mail", 2)
	var ids []string
	for _, seq := range []int64{1, 999, 1000, 1001, 1_790_000_000_000_000, 1_790_000_000_000_001, 1_790_000_000_001_000} {
		ids = append(ids, ns.ID(1, "q", seq, ""))
	}
	if !sort.StringsAreSorted(ids) {
		t.Errorf("not in order: %v", ids)
	}
}

// The text of an id is kept by clients: it must not change.
func TestAnIDIsTheSameForEver(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "mail", 4)
	for id, want := range map[string]string{
		ns.ID(3, "orders", 1_790_000_000_123_456, ""):  "01M3250V3VE803E1QJ5JW86RFA",
		ns.ID(3, "orders", 1_790_000_000_123_456, "a"): "01M3250V3VE803NCTRHD8TSFE4-a",
	} {
		if id != want {
			t.Errorf("got %s, want %s", id, want)
		}
	}
	unmarked := "01M3250V3VE803E1QJPY5BJR1F"
	if _, ok := ns.ParseID("orders", unmarked); ok || job.IsReplyQueue(unmarked) {
		t.Errorf("%s, whose mark is wrong, is taken for an id", unmarked)
	}
}

// likeIDs are names that people choose for queues, such as one a tenant or an order, and that have the form of an id.
var likeIDs = []string{
	"01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAV-eu", "00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
	"01ARZ3NDEKTSV4RRFFQ69G5FAV.eu", "01arz3ndektsv4rrffq69g5fav", "F47AC10B-58CC-4372-A567-0E02B2C3D479", "20261123-0001", "12345678901234567890123456",
}

// Each ULID was taken for a reply queue: its jobs lived for 10 minutes and never became dead.
func TestOnlyTheIDOfAJobNamesAReplyQueue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
	names := likeIDs
	for range 100_000 { // as ULIDs are: a time, and 80 random bits
		name := []byte("01M3250V3V0000000000000000")
		for i := 10; i < len(name); i++ {
			name[i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[r.IntN(32)]
		}
		names = append(names, string(name))
	}
	ns := namespace(t, "mail", 4)
	id, named := ns.ID(3, "orders", 1_790_000_000_123_456, ""), ns.ID(3, "orders", 1_790_000_000_123_456, "a")
	for _, name := range append(names, id+"-a", named[:26], named+"b", id[:25], strings.ToLower(id)) {
		if job.IsReplyQueue(name) {
			t.Errorf("%s is taken for a reply queue", name)
		}
	}
}

// A queue behaves the same whatever its name is.
func FuzzAnyNameIsAsAnyOther(f *testing.F) {
	store := openEmbedded(f)
	for _, name := range append(likeIDs, "q", "-", "delete", "claim", "_x", strings.Repeat("0", 255)) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !partition.ValidQueue(name) {
			return
		}
		if got, want := lifeOf(t, store, name), lifeOf(t, store, "welcome"); got != want {
			t.Errorf("queue %s: got %s, want %s", name, got, want)
		}
	})
}

func openEmbedded(t testing.TB) *job.Store {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: "embedded:"})
	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: map[string]job.Policy{"mail": job.DefaultPolicy()}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// lifeOf is what becomes of a job of a queue: published, claimed, nacked at its last try, respawned, acked.
func lifeOf(t *testing.T, store *job.Store, queue string) (story string) {
	t.Helper()
	ns, lane := store.Namespace("mail"), store.NewLane()
	say := func(what string, err error, values ...any) {
		t.Helper()
		if err != nil {
			t.Fatalf("queue %s: %s: %v", queue, what, err)
		}
		story += fmt.Sprintln(append([]any{what}, values...)...)
	}
	p := &job.Publish{Namespace: ns, Queue: queue, Tries: 1, CallerID: "mine", Messages: []job.Message{{Payload: []byte("x")}}}
	store.Run(t.Context(), lane, &job.Batch{Publishes: []*job.Publish{p}})
	say("publish", p.Err, p.Exists, p.Count)
	for range 2 {
		c := &job.Claim{Namespace: ns, Queues: []string{queue}, TTR: time.Minute, Count: 2}
		store.Run(t.Context(), lane, &job.Batch{Claims: []*job.Claim{c}})
		if c.Err != nil || len(c.Jobs) != 1 {
			t.Fatalf("queue %s: claim: %v, %d jobs", queue, c.Err, len(c.Jobs))
		}
		j := c.Jobs[0]
		ref, parsed := ns.ParseID(queue, j.ID)
		say("claim", nil, j.Queue == queue, j.Attempt, j.Tries, j.Expires, parsed && ref == j.Ref)
		n := &job.Settle{Namespace: ns, Queue: queue, Ref: j.Ref, Attempt: j.Attempt, Verb: job.Nack}
		store.Run(t.Context(), lane, &job.Batch{Settles: []*job.Settle{n}})
		say("nack", n.Err, n.State)
		dead, total, err := store.Dead(t.Context(), ns, queue, 0, 10)
		say("dead", err, len(dead), total)
		respawned, err := store.ActOnDead(t.Context(), &job.DeadAct{Namespace: ns, Queue: queue, Verb: job.RespawnDead, Limit: 10})
		say("respawn", err, respawned)
	}
	counts, err := store.Counts(t.Context(), ns, queue)
	counts.OldestReady = 0
	say("counts", err, counts)
	a := &job.Ack{Namespace: ns, Queue: queue, Ref: job.Ref{Seq: p.First, CallerID: "mine"}}
	store.Run(t.Context(), lane, &job.Batch{Acks: []*job.Ack{a}})
	say("ack", a.Err, a.Acked)
	return story
}

func TestAForeignIDIsOfNobody(t *testing.T) {
	t.Parallel()
	ns, other := namespace(t, "mail", 4), namespace(t, "mails", 4)
	seq := time.Now().UnixMicro()
	id, named := ns.ID(1, "q", seq, ""), ns.ID(1, "q", seq, "a")
	hasTheForm := map[string]bool{
		"another queue": true, "another namespace": true, "a caller's id cut off": true, "a caller's id added": true, "another caller's id": true,
	}
	for what, foreign := range map[string]string{
		"empty": "", "short": id[:25], "long": id + "0", "lower case": strings.ToLower(id), "another queue": ns.ID(1, "q2", seq, ""),
		"another namespace": other.ID(1, "q", seq, ""), "a caller's id cut off": named[:26],
		"a caller's id added": id + "-a", "another caller's id": named[:27] + "b", "an empty caller's id": named[:27],
		"a forbidden caller's id": named[:27] + "a b", "a caller's id that is too long": ns.ID(1, "q", seq, strings.Repeat("a", 65)),
		"beyond 128 bits": "8" + id[1:], "no digit": "U" + id[1:], "a brace": id[:25] + "}",
	} {
		if got, ok := ns.ParseID("q", foreign); ok {
			t.Errorf("%s: %q is %+v", what, foreign, got)
		}
		if got := job.ValidID(foreign); got != hasTheForm[what] {
			t.Errorf("%s: %q has the form of an id: got %v", what, foreign, got)
		}
	}
	for i := range id {
		for _, c := range "0123456789ABCDEFGHJKMNPQRSTVWXYZ" {
			changed := id[:i] + string(c) + id[i+1:]
			if _, ok := ns.ParseID("q", changed); ok && changed != id {
				t.Errorf("%s with another digit %d is accepted: %s", id, i, changed)
			}
		}
	}
}

func FuzzParseID(f *testing.F) {
	ns := namespace(f, "mail", 1024)
	f.Add("q", ns.ID(7, "q", 1_790_000_000_123_456, ""))
	f.Add("q", ns.ID(1023, "q", 1_790_000_000_123_456, "order-1"))
	f.Add("", "01M3250V3VE803E1QJPY5BJR1F")
	f.Fuzz(func(t *testing.T, queue, id string) {
		ref, ok := ns.ParseID(queue, id)
		if ok && ns.ID(ref.Shard, queue, ref.Seq, ref.CallerID) != id {
			t.Errorf("%q of %q is read as %+v, which is %q", id, queue, ref, ns.ID(ref.Shard, queue, ref.Seq, ref.CallerID))
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "_a": true, "-": true, "a.b": true, strings.Repeat("a", 255): true, "0": true,
		"": false, ".a": false, "a b": false, "a{b": false, "a:b": false, "a\x00": false, "ä": false, "a,b": false, strings.Repeat("a", 256): false,
	} {
		if got := partition.ValidQueue(name); got != want {
			t.Errorf("queue %q: got %v", name, got)
		}
	}
	for name, want := range map[string]bool{"a": true, "_-9Z": true, "": false, "a.b": false, "a b": false, strings.Repeat("a", 65): false} {
		if got := job.ValidCallerID(name); got != want {
			t.Errorf("caller's id %q: got %v", name, got)
		}
	}
}

func TestShardsOfAQueue(t *testing.T) {
	t.Parallel()
	p := job.DefaultPolicy()
	p.Shards, p.Spread = 5, map[string]int{"bulk": 3}
	ns, err := job.NewNamespace("sw", "mail", p)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i := range 100 {
		s := ns.Shards(fmt.Sprint("q", i))
		if len(s) != 1 {
			t.Fatalf("got shards %v", s)
		}
		seen[s[0]] = true
	}
	if len(seen) != 5 {
		t.Errorf("100 queues use shards %v", seen)
	}
	s := ns.Shards("bulk")
	if len(s) != 3 || s[1] != (s[0]+1)%5 || s[2] != (s[0]+2)%5 {
		t.Errorf("got %v, want three that follow one another", s)
	}
}

func TestValidateNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	if err := job.DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, set := range map[string]func(*job.Policy){
		"shards":     func(p *job.Policy) { p.Shards = 1025 },
		"spread":     func(p *job.Policy) { p.Shards, p.Spread = 2, map[string]int{"a b": 2} },
		"spread.q":   func(p *job.Policy) { p.Shards, p.Spread = 2, map[string]int{"q": 3} },
		"max_jobs":   func(p *job.Policy) { p.MaxJobs = 0 },
		"max_queues": func(p *job.Policy) { p.MaxQueues = 10_000_001 },
		"max_traces": func(p *job.Policy) { p.MaxTraces = -1 },
		"queues[0].concurrency": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", Concurrency: 10_001}}
		},
		"queues[1].concurrency": func(p *job.Policy) {
			p.Shards, p.Spread = 2, map[string]int{"bulk": 2}
			p.Rules = []job.Rule{{Match: "a", Concurrency: 1}, {Match: "b*", Concurrency: 1}}
		},
		"queues[0].keep_trace": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", KeepTrace: job.Span(721 * time.Hour)}}
		},
		"queues[0].ttr": func(p *job.Policy) { p.Rules = []job.Rule{{Match: "a", TTR: job.Span(time.Millisecond)}} },
		"queues[1].delay": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", Tries: 1}, {Match: "b", Delay: job.Span(721 * time.Hour)}}
		},
		"reply_ttl": func(p *job.Policy) { p.ReplyTTL = time.Millisecond },
	} {
		p := job.DefaultPolicy()
		set(&p)
		var wrong *partition.FieldError
		if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

// A rate on every queue must not hold up the follow-ups, which the mover claims from a queue of
// their own.
func TestNoPatternMatchesTheOutbox(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[job.Pattern]string{"*": "mail", "_*": "", "*out": "out"} {
		got := ""
		for _, queue := range []string{"_out", "mail", "out"} {
			if pattern.Matches(queue) {
				got = queue
				break
			}
		}
		if got != want {
			t.Errorf("%s matches %q first, want %q", pattern, got, want)
		}
	}
}

func TestASpanIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"24h": "24h", "90m": "1h30m", "1m": "1m", "90s": "1m30s", "": "", "100h": "100h", "10m0s": "10m"} {
		var d job.Span
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"0s", "24", "a day", "1d"} {
		if err := new(job.Span).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
