package partition

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
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

// answered is a claim that got an answer.
func answered(raw []byte) *backend.Call {
	c := backend.NewCall(lua.Claim, nil, nil)
	c.Answer.Raw = raw
	return c
}

func decode(t testing.TB, ns *Namespace, c *backend.Call) *Lease {
	t.Helper()
	claim := &ClaimResult{ClaimRequest: ClaimRequest{Namespace: ns, Partition: "p"}}
	if err := c.Read(); err != nil {
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
		c := answered(claimAnswer(batches, entries))
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
		g := &Group{Namespace: ns, Partition: "p", Entries: make([][]byte, n), at: ns.shardOf("p")}
		run := &produceRun{}
		groups := []*Group{g}
		return testing.AllocsPerRun(100, func() {
			for _, j := range run.plan(groups) {
				run.fill(j.Call, j.Items)
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
			groups[i].at = ns.shardOf(groups[i].Partition)
		}
		run := &produceRun{}
		return testing.AllocsPerRun(100, func() {
			for _, j := range run.plan(groups) {
				run.fill(j.Call, j.Items)
			}
			run.forget()
		})
	}
	if one, many := allocs(1), allocs(maxCallPartitions); many > one+1 { // a number above 255 is one
		t.Errorf("%v allocations for one partition, %v for %d", one, many, maxCallPartitions)
	}
}

func FuzzAnAnswerOfAnyFormIsReadOrRejected(f *testing.F) {
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
		c := answered(raw)
		if c.Read() != nil {
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
