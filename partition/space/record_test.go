package space

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// someRecord has a random choice of what a namespace may have recorded.
func someRecord(rnd *rand.Rand) Record {
	r := Record{Version: rnd.Int64N(5), Floor: rnd.Int64N(5), Layouts: []LayoutRecord{{N: 1, Shards: 2}}}
	for n := int64(2); n < 6; n++ {
		if rnd.IntN(2) == 0 {
			r.Layouts = append(r.Layouts, LayoutRecord{N: n, Shards: 1, Tags: []string{fmt.Sprint(n)}})
		}
	}
	for i := range r.Layouts {
		if rnd.IntN(2) == 0 {
			r.Layouts[i].Closed = 100
			if sums := rnd.Int64N(3); sums > 0 {
				r.Layouts[i].Sums = map[string]int64{"accepted": 998 + sums, "lost": rnd.Int64N(2)} // 1000 is more than 999
				r.Layouts[i].Abandoned = 200
			}
		}
	}
	return r
}

func TestJoinedRecordsKnowAllThatEitherKnew(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 24))
	for range 5000 {
		a, b, c := someRecord(rnd), someRecord(rnd), someRecord(rnd)
		both := a.join(b)
		if a.knowsMore(both) || b.knowsMore(both) || both.Version != max(a.Version, b.Version) {
			t.Fatalf("%+v and %+v: %+v", a, b, both)
		}
		if other := b.join(a); !reflect.DeepEqual(both, other) {
			t.Fatalf("%+v and %+v: %+v, the other way round %+v", a, b, both, other)
		}
		if !reflect.DeepEqual(both.join(c), a.join(b.join(c))) || !reflect.DeepEqual(both.join(a), both) {
			t.Fatalf("%+v, %+v and %+v: the order counts", a, b, c)
		}
		if more := both.knowsMore(a); more == (reflect.DeepEqual(both.Layouts, a.Layouts) && both.Floor == a.Floor) {
			t.Fatalf("%+v knows more than %+v: %v", both, a, more)
		}
		for i, l := range both.Layouts {
			for _, o := range slices.Concat(a.Layouts, b.Layouts) {
				if o.N == l.N && o.Sums["accepted"] > l.Sums["accepted"] {
					t.Fatalf("%+v and %+v: layout %d has %+v", a, b, i, l)
				}
			}
		}
		if err := both.check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 24))
	for range 200 {
		r := someRecord(rnd)
		fields := map[string]string{"version": fmt.Sprint(r.Version)}
		all := r.fields()
		for i := 0; i < len(all); i += 2 {
			value := fmt.Sprint(all[i+1])
			if text, ok := all[i+1].([]byte); ok {
				value = string(text)
			}
			fields[fmt.Sprint(all[i])] = value
		}
		if got, err := parseRecord(fields); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, %v, want %+v", got, err, r)
		}
	}
}

func TestARecordThatSpillwayDoesNotWriteIsAnError(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]string{
		"version": "x", "floor": "1.5", "1": "{", "2": `{"n":2,"shards":2,"tags":["a"]}`, "3": `{"n":3,"shards":0}`, "4": `{"n":4,"shards":2000}`,
	} {
		if r, err := parseRecord(map[string]string{field: value}); err == nil {
			t.Errorf("%s=%s: got %+v", field, value, r)
		}
	}
}

func TestWhatLedgersKeepOfARecordTellsWhatIsClosedWithoutItsTags(t *testing.T) {
	t.Parallel()
	whole := Record{Version: 7, Floor: 3, Wanted: 2, Layouts: []LayoutRecord{
		{N: 1, Shards: 2, Closed: 5, Sums: map[string]int64{"accepted": 1}, Forgotten: 7, Abandoned: 6}, {N: 8, Shards: 1, Closed: 6, Tags: []string{"a"}}, {N: 9, Shards: 1, Tags: []string{"b"}}}}
	short := whole.short()
	if short.Version != 0 || short.Floor != 3 || len(short.Layouts) != 3 || short.Layouts[1].Tags != nil || !reflect.DeepEqual(short.Layouts[0], LayoutRecord{N: 1, Shards: 2, Closed: 5}) || short.check() != nil {
		t.Errorf("got %+v", short)
	}
	if len(whole.Layouts) != 3 || !reflect.DeepEqual(whole.join(short), whole) {
		t.Errorf("joined: %+v", whole.join(short))
	}
	late := firstRecord(2).join(short)
	if late.Version != 0 || len(late.Layouts) != 2 || late.Layouts[0].Closed != 5 || late.current().N != 9 || !late.knowsMore(firstRecord(2)) {
		t.Errorf("who knew layout 1 only: %+v", late)
	}
	known := Record{Version: 5, Layouts: []LayoutRecord{{N: 1, Shards: 2}, {N: 8, Shards: 1, Tags: []string{"a"}}}}
	if joined := known.join(short); len(joined.Layouts) != 3 || joined.Layouts[1].Closed != 6 || joined.Layouts[1].Tags == nil {
		t.Errorf("who knew layout 8 open: %+v", joined)
	}
}

func TestALedgerThatLostItsNewEpochCountsAsRolledBack(t *testing.T) {
	t.Parallel()
	d := &rollbackDetector{}
	d.compare(1, 0, 1_000_000, "", true)                   // written before ledgers had epochs
	d.compare(2, d.lowerBound(), 1_000_000, "EPOCH", true) // Check gave it one
	d.add(2, 20)
	// Redis comes back with what it had before the epoch was saved.
	if missing := d.compare(3, d.lowerBound(), 999_990, "", true); missing != 30 {
		t.Errorf("%d entries are missing, want 30", missing)
	}
	// An empty store has neither.
	if missing := d.compare(4, d.lowerBound(), 0, "", false); missing != 999_990 {
		t.Errorf("%d entries are missing, want 999990", missing)
	}
}
