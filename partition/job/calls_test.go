package job

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// commandStats are the calls and the µs of each command of a server so far.
func commandStats(tb testing.TB, c *redis.Client) (calls map[string]int, us map[string]float64) {
	tb.Helper()
	text, err := c.Info(tb.Context(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	calls, us = map[string]int{}, map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || name == "info" {
			continue
		}
		n, rest, _ := strings.Cut(rest, ",usec=")
		calls[name], _ = strconv.Atoi(n)
		spent, _, _ := strings.Cut(rest, ",")
		us[name], _ = strconv.ParseFloat(spent, 64)
	}
	return calls, us
}

// spent are the scripts and all commands, scripts and what they call, that f makes the server
// run, and for how long the scripts ran, in µs.
func spent(tb testing.TB, c *redis.Client, f func()) (scripts, commands int, us float64) {
	tb.Helper()
	calls, time := commandStats(tb, c)
	f()
	after, timeAfter := commandStats(tb, c)
	for name, n := range after {
		commands += n - calls[name]
	}
	return after["evalsha"] - calls["evalsha"], commands, timeAfter["evalsha"] - time["evalsha"]
}

// What a Run costs Redis: scripts, and the commands that they run beside TIME.
func TestRedisCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	ns, l, c := s.Namespace("mail"), s.NewLane(), server.Client()
	publishOne(t, s, "warm")
	plain := func(queue string, n int, edit func(*Publish)) (b Batch) {
		for range n {
			p := &Publish{Namespace: ns, Queue: queue, Tries: 3, Messages: payload("x")}
			if edit != nil {
				edit(p)
			}
			b.Publishes = append(b.Publishes, p)
		}
		return b
	}
	claims := func(n, count int, queues ...string) (b Batch) {
		for range n {
			b.Claims = append(b.Claims, &Claim{Namespace: ns, Queues: queues, TTR: time.Hour, Count: count})
		}
		return b
	}
	var taken []Job
	acks := func(n int) (b Batch) {
		for _, j := range taken[:n] {
			b.Acks = append(b.Acks, &Ack{Namespace: ns, Queue: j.Queue, Ref: j.Ref})
		}
		taken = taken[n:]
		return b
	}
	nacks := func(n int) (b Batch) {
		for _, j := range taken[:n] {
			b.Settles = append(b.Settles, &Settle{Namespace: ns, Queue: j.Queue, Ref: j.Ref, Attempt: j.Attempt, Verb: Nack, After: time.Hour})
		}
		taken = taken[n:]
		return b
	}
	for _, row := range []struct {
		what              string
		batch             func() Batch
		scripts, commands int
	}{
		{"the first of a queue", func() Batch { return plain("q", 1, nil) }, 1, 8},
		{"one more", func() Batch { return plain("q", 1, nil) }, 1, 5},
		{"128 of one queue", func() Batch { return plain("q", 128, nil) }, 1, 5},
		{"one delayed", func() Batch { return plain("q", 1, func(p *Publish) { p.Delay = time.Hour }) }, 1, 5},
		{"one with a key", func() Batch { return plain("q", 1, func(p *Publish) { p.Key = "k" }) }, 1, 9},
		{"the same key again", func() Batch { return plain("q", 1, func(p *Publish) { p.Key = "k" }) }, 1, 4},
		{"a claim of one", func() Batch { return claims(1, 1, "q") }, 1, 5},
		{"two claims of 8, alike", func() Batch { return claims(2, 8, "q") }, 1, 5},
		{"a claim of 100", func() Batch { return claims(1, 100, "q") }, 1, 7},
		{"a claim of nothing", func() Batch { return claims(1, 1, "empty") }, 1, 2},
		{"32 claims of 1000, of nothing", func() Batch { return claims(32, 1000, "empty") }, 1, 2},
		{"an ack", func() Batch { return acks(1) }, 1, 6},
		{"100 acks", func() Batch { return acks(100) }, 1, 7},
		{"a nack", func() Batch { return nacks(1) }, 1, 9},
	} {
		b := row.batch()
		scripts, commands, _ := spent(t, c, func() { runOne(s, l, &b, most) })
		for _, p := range b.Publishes {
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		}
		for _, c := range b.Claims {
			taken = append(taken, c.Jobs...)
		}
		if commands -= 2 * scripts; scripts != row.scripts || commands != row.commands { // EVALSHA and TIME
			t.Errorf("%s: %d scripts, %d commands, want %d, %d", row.what, scripts, commands, row.scripts, row.commands)
		}
	}
}

// BenchmarkCalls are the largest calls that Run plans: µs of Redis a call and a job.
func BenchmarkCalls(b *testing.B) {
	server := redistest.Start(b)
	s := openAt(b, server.URL(), "sw", true, nil)
	ns, l, c := s.Namespace("mail"), s.NewLane(), server.Client()
	for _, size := range []struct{ queues, jobs, bytes int }{{1, 1, 200}, {1, 16, 200}, {1, 128, 200}, {1, 1000, 200}, {64, 1000, 200}, {64, 64, 200}, {1, 1000, 1000}} {
		b.Run(fmt.Sprintf("queues=%d/jobs=%d/bytes=%d", size.queues, size.jobs, size.bytes), func(b *testing.B) {
			text := strings.Repeat("x", size.bytes)
			var published, claimed, acked float64
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				var publish, claim, ack Batch
				for i := range size.jobs {
					publish.Publishes = append(publish.Publishes, &Publish{Namespace: ns, Queue: fmt.Sprint("q", i%size.queues), Tries: 3, Messages: payload(text)})
				}
				for i := range size.queues {
					claim.Claims = append(claim.Claims, &Claim{Namespace: ns, Queues: []string{fmt.Sprint("q", i)}, TTR: time.Hour, Count: (size.jobs + size.queues - 1) / size.queues})
				}
				_, _, us := spent(b, c, func() { runOne(s, l, &publish, most) })
				published += us
				_, _, us = spent(b, c, func() { runOne(s, l, &claim, most) })
				claimed += us
				for _, c := range claim.Claims {
					for _, j := range c.Jobs {
						ack.Acks = append(ack.Acks, &Ack{Namespace: ns, Queue: j.Queue, Ref: j.Ref})
					}
				}
				if len(ack.Acks) != size.jobs {
					b.Fatalf("%d jobs, want %d: %v", len(ack.Acks), size.jobs, claim.Claims[0].Err)
				}
				_, _, us = spent(b, c, func() { runOne(s, l, &ack, most) })
				acked += us
			}
			b.ReportMetric(published/float64(n), "publish-µs")
			b.ReportMetric(claimed/float64(n), "claim-µs")
			b.ReportMetric(acked/float64(n), "ack-µs")
			b.ReportMetric((published+claimed+acked)/float64(n*size.jobs), "µs/job")
		})
	}
}

// A flush of 128 requests allocates little: what the client needs for a pipeline, and for each
// job of a claim the two that the client makes for its sequence and its record.
func TestRunAllocatesLittle(t *testing.T) {
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	ns, l := s.Namespace("mail"), s.NewLane()
	var publish, claim, ack Batch
	for i := range 128 {
		q := fmt.Sprint("q", i%8)
		publish.Publishes = append(publish.Publishes, &Publish{Namespace: ns, Queue: q, Tries: 3, TTL: time.Hour, Messages: payload("x")})
		ack.Acks = append(ack.Acks, &Ack{Namespace: ns, Queue: q})
		if i < 8 {
			claim.Claims = append(claim.Claims, &Claim{Namespace: ns, Queues: []string{q}, TTR: time.Hour, Count: 16})
		}
	}
	var failed error // of a loaded machine, where Redis seems to be away
	round := func() {
		s.Run(t.Context(), l, &publish)
		s.Run(t.Context(), l, &claim)
		n := 0
		for _, c := range claim.Claims {
			for _, j := range c.Jobs {
				ack.Acks[n].Queue, ack.Acks[n].Ref = j.Queue, j.Ref
				n++
			}
		}
		s.Run(t.Context(), l, &ack)
		for i := range publish.Publishes {
			failed = errors.Join(failed, publish.Publishes[i].Err, claim.Claims[i%8].Err, ack.Acks[i].Err)
		}
		if failed == nil && (n != 128 || !ack.Acks[127].Acked) {
			t.Fatalf("%d jobs, %+v", n, ack.Acks[127])
		}
	}
	got := 0.0
	redistest.Until(t, most, "all rounds are answered", func() bool {
		failed = nil
		if round(); failed == nil {
			got = testing.AllocsPerRun(20, round)
		}
		return failed == nil
	})
	if got > 2*128+110 {
		t.Errorf("%v allocations for 128 jobs published, claimed and acked in 8 queues, want 366 at most", got)
	} else {
		t.Logf("%v allocations", got)
	}
}

// Some rules stand in the scripts and here: change both.
func TestTheScriptsHaveTheBoundsOfTheStore(t *testing.T) {
	t.Parallel()
	for _, bound := range []struct{ script, want string }{
		{luajob.Publish.Source, fmt.Sprintf("local rest = %d -- ms until the head", headEvery)},
		{luajob.Claim.Source, fmt.Sprintf("ttr > %.0e ", float64(leaseMS(math.MaxInt64)))},
		{luajob.Settle.Source, fmt.Sprintf("ms > %.0e ", float64(leaseMS(math.MaxInt64)))},
	} {
		if want := strings.ReplaceAll(bound.want, "e+", "e"); !strings.Contains(bound.script, want) {
			t.Errorf("the script has not %q", want)
		}
	}
}

func TestAnErrorIsOneLineOfPrintableText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		" \n\t":                           "",
		"connection\nrefused\x00\x1b[31m": "connection refused  [31m",
		"a\u202eb\u2066c\u200fd\u2028":    "a b c d",
		"\xff\xfeno":                      "\ufffd\ufffdno",
		strings.Repeat("x", 1<<20):        strings.Repeat("x", MaxError),
		strings.Repeat("x", 1023) + "é":   strings.Repeat("x", 1023),
		strings.Repeat("\xff", 1<<20):     strings.Repeat("\ufffd", MaxError/3),
		strings.Repeat("\n", 1<<20) + "x": "",
	} {
		if got := keptText(text, MaxError); got != want {
			t.Errorf("%.40q: got %.60q, want %.60q", text, got, want)
		}
	}
}

func TestWhatSomethingElseWroteAsErrorsIsLeftOut(t *testing.T) {
	t.Parallel()
	got := failures([]byte("2 1763600000001 no \x1b disk\nx\n\n1 5\n9999999999 5 x\n1 1763600000000 no"))
	if want := []Failure{{2, 1763600000001, "no   disk"}, {1, 1763600000000, "no"}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		expires int64
		tries   int
		caller  string
		m       Message
		want    string
	}{
		{0, 1, "", Message{Payload: []byte("x")}, "0000000000000 1 x"},
		{1_790_000_000_123, 65535, "", Message{}, "1790000000123 65535 "},
		{maxExpiry, 3, "order-1", Message{Payload: []byte("#1,@ ")}, "9999999999999 3@order-1 #1,@ "},
		{7, 3, "", Message{Payload: []byte(" y"), Attributes: []byte(`{"a":"b"}`)}, `0000000000007 3#9,{"a":"b"} y`},
		{7, 3, "a", Message{Attributes: []byte(`{}`)}, `0000000000007 3@a#2,{}`},
	} {
		record := appendRecord(nil, r.expires, r.tries, r.caller, r.m)
		if string(record) != r.want {
			t.Errorf("got %q, want %q", record, r.want)
		}
		if len(record) > recordSize(r.caller, r.m) {
			t.Errorf("%q is larger than %d", record, recordSize(r.caller, r.m))
		}
		var j Job
		if !parseRecord(record, &j) || j.Expires != r.expires || j.Tries != r.tries || j.CallerID != r.caller ||
			!bytes.Equal(j.Payload, r.m.Payload) || !bytes.Equal(j.Attributes, r.m.Attributes) {
			t.Errorf("%q is read as %+v", record, j)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`0000000000007 3@a#2,{}x`))
	f.Add([]byte("0000000000000 1 x"))
	f.Add([]byte("0000000000000 1#999999999999999999,"))
	f.Fuzz(func(t *testing.T, record []byte) {
		var j Job
		if !parseRecord(record, &j) {
			return
		}
		var again Job
		if !parseRecord(appendRecord(nil, j.Expires, j.Tries, j.CallerID, Message{j.Payload, j.Attributes}), &again) ||
			again.CallerID != j.CallerID || !bytes.Equal(again.Payload, j.Payload) || !bytes.Equal(again.Attributes, j.Attributes) {
			t.Errorf("%q is read as %+v, and written as %+v", record, j, again)
		}
	})
}
