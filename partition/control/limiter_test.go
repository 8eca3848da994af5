package control

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/job"
)

// window is a stand-in for the script: one process's view of a shared window.
type window struct {
	left, asked, ends int64
	err               error
}

func (w *window) limiter(count int64, per time.Duration) *Limiter {
	return &Limiter{rate: partition.Rate{Count: count, Per: per}, asking: make(chan struct{}, 1), grant: func(_ context.Context, l *Limiter, need int64) (granted, error) {
		w.asked++
		now := time.Now().UnixMilli()
		if w.err != nil {
			return granted{}, w.err
		}
		if w.ends <= now {
			w.ends, w.left = now+l.rate.Per.Milliseconds(), l.rate.Count
		}
		g := granted{sent: time.Now(), now: now, until: w.ends}
		if slice := max(l.rate.Count/slicesOfWindow, 1); need <= w.left {
			g.n = min((need+slice-1)/slice*slice, w.left)
		}
		w.left -= g.n
		g.left = w.left
		return g, nil
	}}
}

// take takes n and expects the wait.
func take(t *testing.T, l *Limiter, n int64, want time.Duration) Taken {
	t.Helper()
	taken, wait, err := l.Take(context.Background(), n)
	if err != nil || wait != want {
		t.Fatalf("take %d: got wait %v, %v, want %v", n, wait, err, want)
	}
	return taken
}

func TestALimiterAsksRedisOnceASlice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		for range 640 {
			take(t, l, 1, 0)
		}
		if w.asked != 64 {
			t.Errorf("asked %d times, want 64", w.asked)
		}
		take(t, l, 1, time.Minute)
		take(t, l, 1, time.Minute)
		if w.asked != 64 {
			t.Errorf("asked %d times about a window that was used up, want 64", w.asked)
		}
		clocktest.Pass(time.Minute) // of the bubble's clock
		take(t, l, 640, 0)
		if w.asked != 65 {
			t.Errorf("asked %d times, want 65", w.asked)
		}
	})
}

func TestATakeIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(100, time.Minute)
		take(t, l, 60, 0)
		take(t, l, 50, time.Minute)
		take(t, l, 40, 0)
		take(t, l, 101, -1)
		take(t, l, 0, 0)
		take(t, nil, 1000, 0)
	})
}

func TestARefundIsOfItsWindowOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(10, time.Minute)
		first := take(t, l, 10, 0)
		first.RefundPart(4)
		take(t, l, 4, 0)
		take(t, l, 1, time.Minute)
		first.RefundPart(-1)
		take(t, l, 1, time.Minute)
		clocktest.Pass(time.Minute)
		take(t, l, 10, 0)
		first.Refund()
		take(t, l, 1, time.Minute)
		Taken{}.Refund()
	})
}

func TestAFailedGrantTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		take(t, l, 5, 0) // 5 are left of the slice
		w.err = backend.ErrUnavailable
		if _, _, err := l.Take(context.Background(), 6); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		take(t, l, 5, 0)
		w.err = nil
		take(t, l, 630, 0)
		take(t, l, 1, time.Minute)
	})
}

// Others may have begun the next window before this process noticed that its own ended.
func TestCreditOfAWindowThatEndedIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w window
		l := w.limiter(640, time.Minute)
		take(t, l, 5, 0)
		w.ends, w.left = w.ends+60_000, 8
		take(t, l, 9, 2*time.Minute) // 5 of the old one do not count
		take(t, l, 8, 0)
		take(t, l, 1, 2*time.Minute)
	})
}

func TestATakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var w window
	l := w.limiter(10, time.Minute)
	l.asking <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := l.Take(ctx, 1); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// What is made at run time is kept in this form for ever.
func TestTheFormOfEntries(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread, policy.DropDead, policy.ReplyTTL = 4, map[string]int{"bulk": 4}, true, time.Minute
	policy.MaxSchedules = 7
	for _, c := range []struct {
		entry interface {
			entry() string
			encode() string
		}
		name, want string
	}{
		{
			&Namespace{Name: "mail", Pool: "fast", Description: "of the shop", Policy: policy, CreatedMS: 5, CreatedBy: "alice"}, "ns:mail",
			`{"kind":"queue","pool":"fast","description":"of the shop","shards":4,"spread":{"bulk":4},"max_jobs":10000000,"max_queues":10000,"max_schedules":7,"dead":"drop","reply_ttl":"1m0s","created_ms":5,"created_by":"alice"}`,
		},
		{
			&Token{Namespace: "mail", Hash: HashToken("a"), Name: "crm", Description: "d", Produce: partition.Rate{Count: 1000, Per: time.Minute}, Limit: &Limit{1, 2, 3}, CreatedMS: 5},
			"token:mail:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"crm","description":"d","produce":"1000/min","limit":{"read":1,"write":2,"interval":3},"created_ms":5}`,
		},
		{
			&Token{Namespace: "mail", Hash: HashToken("a"), Name: "ca978112", Text: "a", CreatedMS: 5},
			"token:mail:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"ca978112","text":"a","created_ms":5}`,
		},
		{
			&Admin{Name: "alice", Role: "viewer", Hash: HashToken("a"), CreatedMS: 5, CreatedBy: "root"},
			"admin:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"alice","role":"viewer","created_ms":5,"created_by":"root"}`,
		},
	} {
		if c.entry.entry() != c.name || c.entry.encode() != c.want {
			t.Errorf("got %s\n%s\nwant %s\n%s", c.entry.entry(), c.entry.encode(), c.name, c.want)
		}
		if got, err := decodeEntry(c.name, c.want); err != nil || !reflect.DeepEqual(got, c.entry) {
			t.Errorf("read again: got %+v, %v, want %+v", got, err, c.entry)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	hash := strings.Repeat("0f", 32)
	f.Add("ns:mail", `{"kind":"queue","pool":"default","shards":2,"spread":{"q":2},"max_jobs":1,"max_queues":1,"dead":"keep","reply_ttl":"10m0s","created_ms":1}`)
	f.Add("token:mail:"+hash, `{"name":"a","produce":"10/s","limit":{"read":1,"write":0,"interval":1},"created_ms":1}`)
	f.Add("admin:"+hash, `{"name":"a","role":"viewer","created_ms":-1}`)
	f.Add("token::"+hash, `{}`)
	f.Add("ns:x", `{"kind":"queue","spread":{"a":1e9},"reply_ttl":"1ns"}`)
	f.Add("other:x", "null")
	f.Fuzz(func(t *testing.T, name, value string) {
		e, err := decodeEntry(name, value)
		if err != nil {
			return
		}
		again := e.(interface {
			entry() string
			encode() string
		})
		if again.entry() != name {
			t.Errorf("%q is read as %q", name, again.entry())
		}
		if twice, err := decodeEntry(name, again.encode()); err != nil || !reflect.DeepEqual(twice, e) {
			t.Errorf("%s %s: read again %+v, %v, want %+v", name, value, twice, err, e)
		}
		d := &document{version: 1, values: map[string]string{name: value}, entries: map[string]any{name: e}}
		s := newSnapshot(d, &File{Admins: []Admin{{Name: "root"}}})
		if used := len(s.Namespaces()) + len(s.byHash) + len(s.Admins()) - 1 + len(s.Ignored); used != 1 {
			t.Errorf("%q is used or told %d times", name, used)
		}
	})
}
