package partition

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
)

// claimAnswer is a claim's answer as Redis writes it.
func claimAnswer(batches, entries int) []byte {
	var b bytes.Buffer
	b.WriteString("*" + strconv.Itoa(7+batches) + "\r\n:1763629675100\r\n:4\r\n:0\r\n:1763629675000000\r\n:1\r\n$0\r\n\r\n:" + strconv.Itoa(batches) + "\r\n")
	entry := "1763629675100 " + strings.Repeat("x", 200)
	for range batches {
		b.WriteString("*" + strconv.Itoa(entries) + "\r\n")
		for range entries {
			b.WriteString("$" + strconv.Itoa(len(entry)) + "\r\n" + entry + "\r\n")
		}
	}
	return b.Bytes()
}

func decode(t testing.TB, ns *Namespace, c *call) *Lease {
	t.Helper()
	claim := &ClaimResult{ClaimRequest: ClaimRequest{Namespace: ns, Partition: "p"}}
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	if _, err := claim.read(c, time.Time{}); err != nil {
		t.Fatal(err)
	}
	return claim.Lease
}

func TestAllocsOfAClaimDoNotGrowWithItsEntries(t *testing.T) {
	ns, err := newNamespace("sw", "default", DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(batches, entries int) float64 {
		c := &call{script: lua.Claim, answer: reply{claimAnswer(batches, entries)}}
		if got := len(decode(t, ns, c).Entries); got != batches*entries {
			t.Fatalf("%d entries, want %d", got, batches*entries)
		}
		return testing.AllocsPerRun(100, func() { decode(t, ns, c) })
	}
	one, many := allocs(1, 1), allocs(8, 128)
	// The claim, its lease, its cuts, its entries.
	if one > 4 || many != one {
		t.Errorf("%v allocations for one entry, %v for 1024; want 4 for both", one, many)
	}
}

func TestAllocsOfAProduceCallDoNotGrowWithItsEntries(t *testing.T) {
	ns, err := newNamespace("sw", "default", DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(n int) float64 {
		g := &Group{Namespace: ns, Partition: "p", Entries: make([][]byte, n)}
		run := &produceRun{}
		groups := []*Group{g}
		return testing.AllocsPerRun(100, func() {
			for _, j := range run.plan(groups) {
				run.fill(j.call, j.items)
			}
			run.forget()
		})
	}
	if one, many := allocs(1), allocs(1000); many > one+1 { // a number above 255 is one
		t.Errorf("%v allocations for one entry, %v for 1000", one, many)
	}
}

func TestAllocsOfAProduceCallDoNotGrowWithItsPartitions(t *testing.T) {
	ns, err := newNamespace("sw", "default", DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(n int) float64 {
		groups := make([]*Group, n)
		for i := range groups {
			groups[i] = &Group{Namespace: ns, Partition: "p" + strconv.Itoa(i), Entries: make([][]byte, 1)}
		}
		run := &produceRun{}
		return testing.AllocsPerRun(100, func() {
			for _, j := range run.plan(groups) {
				run.fill(j.call, j.items)
			}
			run.forget()
		})
	}
	if one, many := allocs(1), allocs(maxCallPartitions); many > one+1 { // a number above 255 is one
		t.Errorf("%v allocations for one partition, %v for %d", one, many, maxCallPartitions)
	}
}

func TestAReplyTakesWhatTheClientCopies(t *testing.T) {
	t.Parallel()
	var r reply
	if _, err := r.Write([]byte("$5\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(&r, strings.NewReader("hello\r\n and more"), 7); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	c := cursor{rest: r.raw}
	if got := c.bulk(); string(got) != "hello" || c.broken || len(c.rest) > 0 {
		t.Errorf("read %q, broken %v, left %q", got, c.broken, c.rest)
	}
	if n, err := io.CopyN(&r, strings.NewReader("cut"), 7); n != 3 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn reply: %d bytes, %v", n, err)
	}
}

func TestAnErrorReplyIsRedissError(t *testing.T) {
	t.Parallel()
	var r reply
	_, err := r.Write([]byte("-MOVED 1 127.0.0.1:7000"))
	var answered redis.Error
	if !errors.As(err, &answered) || answered.Error() != "MOVED 1 127.0.0.1:7000" || len(r.raw) > 0 {
		t.Errorf("%v; kept %q", err, r.raw)
	}
}

func FuzzAnAnswerOfAnyFormIsReadOrRefused(f *testing.F) {
	f.Add(claimAnswer(2, 2))
	for _, seed := range []string{"", "*0\r\n", "*-1\r\n", ":1\r\n", "*2\r\n:1\r\n:2\r\n", "*3\r\n:2\r\n:1\r\n*1\r\n$-1\r\n",
		"*8\r\n:1\r\n:4\r\n:0\r\n:5\r\n:1\r\n$0\r\n\r\n:1\r\n*2\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n:2\r\n", "*3\r\n:1\r\n:0\r\n:7\r\n",
		"*8\r\n:1\r\n:2\r\n:0\r\n:5\r\n:1\r\n$3\r\n101\r\n:1\r\n$1\r\na\r\n", "*99999999999999999999\r\n:1\r\n",
		"*6\r\n:2\r\n:1\r\n:0\r\n:5\r\n:1\r\n*1\r\n$50\r\nabc", "*6\r\n:2\r\n:1\r\n:0\r\n:5\r\n:1\r\n*999999999\r\n", "*6\r\n:2\r\n:1\r\n:0\r\n:5\r\n:1\r\n*1\r\n$-1\r\n",
		"*7\r\n:2\r\n:1763629675100\r\n:0\r\n:1763629675000000\r\n:1\r\n*2\r\n$15\r\n1763629675100 x\r\n$0\r\n\r\n*1\r\n$1\r\na\r\n",
		"*2\r\n:-3\r\n:1\r\n", "*3\r\n:2\r\n:1\r\n:0\r\n",
	} {
		f.Add([]byte(seed))
	}
	ns, err := newNamespace("sw", "default", DefaultPolicy())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &call{script: lua.Claim, answer: reply{raw}}
		if c.read() != nil {
			return
		}
		claim := &ClaimResult{ClaimRequest: ClaimRequest{Namespace: ns, Partition: "p"}}
		if _, err := claim.read(c, time.Time{}); err == nil && claim.Lease != nil {
			if l := claim.Lease; l.Done != nil && len(l.Done) != len(l.Entries) || l.To-l.From != int64(len(l.Entries)) || len(l.Cuts) > 0 && l.Cuts[len(l.Cuts)-1] != l.To {
				t.Errorf("a lease that does not fit itself: %+v", l)
			}
		}
	})
}

func TestAClaimBeginsWithLittleMemoryHoweverLargeTheLastOneWas(t *testing.T) {
	t.Parallel()
	var sh shard
	for last, want := range map[int64]int{0: 0, 3000: 3000, claimBytes: usualLease} {
		sh.claimed.Store(last)
		if got := cap(sh.answerMemory()); got != want {
			t.Errorf("after %d bytes: %d, want %d", last, got, want)
		}
	}
}
