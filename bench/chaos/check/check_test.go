package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
)

var began = time.UnixMilli(1_763_629_675_000)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// good is a run that keeps every promise: eight entries of one partition are
// acknowledged, a ninth is unknown and was stored; the sink gets them in three
// posts and rejects the eighth for good.
func good() *History {
	h := &History{
		Policy: Policy{Capacity: 4, MaxAge: 4 * time.Second},
		Final: Final{
			Ledger:      partition.Ledger{Accepted: 9, Delivered: 8, Dead: 1},
			DeadLetters: 1, Dead: []uint64{8},
		},
		Samples: []Sample{{At: at(15), Ledger: map[string]int64{"accepted": 4, "delivered": 1, "evicted": 1, "reclaimed": 1}, Partitions: []Depth{
			{Partition: "kart", Length: 3, Known: true, Head: 101, Tail: 104, Active: true}, {Partition: "other"},
		}}},
		Processes: []Process{{
			Name: "all-0", Alive: true, Garbage: true, Birth: map[string]float64{"go_goroutines": 20},
			Last: map[string]float64{
				"go_goroutines": 30,
				`spillway_ingest_entries_total{namespace="default",result="accepted"}`:  8,
				`spillway_drain_entries_total{namespace="default",outcome="delivered"}`: 8,
				`spillway_drain_entries_total{namespace="default",outcome="dead"}`:      1,
			},
		}},
		Faults: []Fault{{Kind: "kill", Target: "redis", From: at(1), To: at(2)}},
		Floor:  Floor{Acks: 8, Unknowns: 1, Taken: 8, Faults: 1},
		Ended:  at(9000),
	}
	for uid := range uint64(9) {
		s := Sent{UID: uid + 1, Partition: "kart", Start: at(int(uid) * 10), End: at(int(uid)*10 + 5), Outcome: Acked}
		if uid == 8 {
			s.Outcome = Unknown
		}
		h.Sent = append(h.Sent, s)
	}
	h.Posts = []Post{post(100, 200, 1, 2, 3), post(400, 200, 4, 5, 6, 7), post(500, 422, 8), post(600, 200, 9)}
	return h
}

// post is one of entries whose sequence is their uid and 100, each 10ms younger
// than the one before it.
func post(ms, status int, uids ...uint64) Post {
	p := Post{Worker: "all-0", Partition: "kart", At: at(ms), Answered: at(ms + 1), Status: status, Kept: status == 200}
	for _, uid := range uids {
		p.Batch += "b" + string(rune('0'+uid))
		p.Lines = append(p.Lines, Line{Seq: 99 + int64(uid), TS: at(int(uid) * 10).UnixMilli(), Data: Payload{UID: uid, Partition: "kart", Intact: true}})
	}
	return p
}

// again repeats post i later, by another process.
func again(h *History, i, ms int) *Post {
	p := h.Posts[i]
	p.Lines = slices.Clone(p.Lines)
	p.At, p.Answered, p.Worker = at(ms), at(ms+1), "all-1"
	h.Posts = append(h.Posts, p)
	return &h.Posts[len(h.Posts)-1]
}

// drop takes an entry out of its post, as if it had never come.
func drop(h *History, post, line int) {
	p := &h.Posts[post]
	p.Lines = slices.Delete(slices.Clone(p.Lines), line, line+1)
	h.Final.Ledger.Delivered--
	h.Floor.Taken--
	h.Processes = nil
}

func TestARunThatKeepsEveryPromiseHasNoViolation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*History){
		"as it is": func(*History) {},
		"a crash before the settlement, so the lease lapses and the batch comes again": func(h *History) { again(h, 1, 3600) },
		"a repeat without what went stale, under another id": func(h *History) {
			p := again(h, 1, 3600)
			p.Lines, p.Batch = p.Lines[1:], "shorter"
		},
		"a repeat at once, for the sink had not said that it took it": func(h *History) { h.Posts[1].Status = 0; again(h, 1, 450).Status = 200 },
		"a repeat at once, for the age of its oldest entry ended the Write": func(h *History) {
			h.Policy.MaxAge = 1200 * time.Millisecond
			again(h, 1, 450)
		},
		"the oldest was evicted": func(h *History) { drop(h, 0, 0); h.Final.Ledger.Evicted = 1 },
		"one expired in time":    func(h *History) { drop(h, 3, 0); h.Final.Ledger.Expired = 1 },
		"an unknown was not stored": func(h *History) {
			drop(h, 3, 0)
			h.Final.Ledger.Accepted = 8
		},
		"a store that forgets, and is found out": func(h *History) {
			h.Policy.Forgets = true
			h.Final.Ledger.Accepted, h.Final.Ledger.Delivered = 7, 6
			h.Processes[0].Last[`spillway_store_rolled_back_entries_total{pool="default"}`] = 1
		},
		"a failover that lost what no client was told of": func(h *History) {
			h.Policy.Replicated = true
			h.Samples = append(h.Samples, Sample{At: at(16), Ledger: map[string]int64{"accepted": 3, "delivered": 1, "evicted": 1, "reclaimed": 1},
				Partitions: []Depth{{Partition: "kart", Length: 2, Known: true, Head: 101, Tail: 103, Active: true}}})
			h.Posts[0], h.Posts[1] = h.Posts[1], h.Posts[0]
		},
		"a partition that was paused": func(h *History) {
			h.Policy.Lease = 3 * time.Second
			h.Pauses = []Pause{{Partition: "kart", From: at(-100), To: at(5000), Listed: true}}
		},
		"a thawed process presents what was evicted meanwhile": func(h *History) {
			h.Faults = append(h.Faults, Fault{Kind: KindStop, Target: "all-0", From: at(1000), To: at(5000)})
			p := post(5100, 200, 1)
			h.Posts = append(h.Posts[1:], p)
			h.Posts[0].Lines = append(post(0, 0, 2, 3).Lines, h.Posts[0].Lines...)
		},
		"side namespaces that lose what they may": func(h *History) {
			h.All = []Namespace{
				{Name: "default", Ledger: map[string]int64{"buffered": 0, "dead": 1}},
				{Name: "work", Counted: 7, Ledger: map[string]int64{"ready": 1, "delayed": 1, "leased": 2, "dead": 3}},
				{Name: "once", Once: true, Sent: h.Sent, Posts: h.Posts[:1], Ledger: map[string]int64{"accepted": 8, "delivered": 8}},
				{Name: "bulk", Sent: h.Sent, Posts: append(h.Posts[:2:2], h.Posts[0]), Ledger: map[string]int64{"accepted": 9, "delivered": 7, "dead": 1, "expired": 1}},
			}
			h.Processes[0].Last[`spillway_store_janitor_expired_total{pool="default"}`] = 1
		},
	} {
		h := good()
		change(h)
		if got := Run(h); got != nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestEachBrokenPromiseIsNamed(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		check, text string
		change      func(*History)
	}{
		"a shard's ledger":      {"C1", "break the law", func(h *History) { h.Samples[0].Ledger["accepted"]++ }},
		"a list and its hash":   {"C1", "tail - head", func(h *History) { h.Samples[0].Partitions[0].Tail++ }},
		"a list without a hash": {"C1", "tail - head", func(h *History) { h.Samples[0].Partitions[0].Known = false }},
		"the audit":             {"C1", "residual", func(h *History) { h.Final.Residual = -1 }},
		"the sum":               {"C1", "sum up", func(h *History) { h.Final.Ledger.Delivered-- }},
		"a negative class":      {"C1", "below 0", func(h *History) { h.Final.Ledger.Evicted, h.Final.Ledger.Expired = -1, 1 }},
		"a loss":                {"C1", "lost", func(h *History) { h.Final.Ledger.Lost, h.Final.Ledger.Delivered = 1, 7 }},
		"a dead letter":         {"C1", "letters", func(h *History) { h.Final.DeadLetters = 0 }},
		"an acknowledgement":    {"C2", "only 7 accepted", func(h *History) { h.Final.Ledger.Accepted = 7 }},
		"a store that forgets and nobody notices": {"C2", "no server noticed", func(h *History) {
			h.Policy.Forgets = true
			h.Final.Ledger.Accepted, h.Final.Ledger.Delivered = 7, 6
		}},
		"a hidden retry":          {"C2", "10 accepted", func(h *History) { h.Final.Ledger.Accepted = 10 }},
		"an entry stored twice":   {"C3", "twice", func(h *History) { again(h, 3, 700).Lines[0].Seq = 109 }},
		"a checksum":              {"C4", "not what was sent", func(h *History) { h.Posts[0].Lines[0].Data.Intact = false }},
		"an entry nobody sent":    {"C4", "never sent", func(h *History) { h.Posts[0].Lines[0].Data.UID = 77 }},
		"another's partition":     {"C4", "changed their partition", func(h *History) { h.Posts[0].Partition = "other" }},
		"a sequence of two":       {"C4", "two entries", func(h *History) { h.Posts[0].Lines[1].Seq = 100 }},
		"an entry that vanished":  {"C5", "silently", func(h *History) { drop(h, 1, 0) }},
		"more missing than known": {"C5", "the ledger covers", func(h *History) { drop(h, 0, 0); drop(h, 0, 0); h.Final.Ledger.Evicted = 1 }},
		"delivered, but not":      {"C6", "the sink took 8", func(h *History) { h.Final.Ledger.Delivered = 9 }},
		"taken, but not counted":  {"C6", "the ledger knows of", func(h *History) { h.Final.Ledger.Delivered = 6 }},
		"a first one too late":    {"C7", "after their successors", func(h *History) { h.Posts[0], h.Posts[1] = h.Posts[1], h.Posts[0] }},
		"two holders":             {"C7", "another held", func(h *History) { again(h, 1, 800) }},
		"a batch id of another":   {"C7", "with other entries", func(h *History) { h.Posts[1].Batch = h.Posts[0].Batch }},
		"a batch under two ids":   {"C7", "another id", func(h *History) { again(h, 1, 3600).Batch = "new" }},
		"a stale one":             {"C8", "stale", func(h *History) { again(h, 1, 5200) }},
		"a fresh one that expired": {"C8", "fresh", func(h *History) {
			drop(h, 1, 0)
			h.Final.Ledger.Expired = 1
		}},
		"a full partition": {"C9", "more than the capacity", func(h *History) { h.Samples[0].Partitions[0].Length = 5 }},
		"a young one evicted": {"C9", "not the oldest", func(h *History) {
			drop(h, 1, 3)
			h.Final.Ledger.Evicted = 1
		}},
		"an orphan":  {"C10", "not active", func(h *History) { h.Samples[0].Partitions[0].Active = false }},
		"a ghost":    {"C10", "without entries", func(h *History) { h.Samples[0].Partitions[1].Active = true }},
		"a rest":     {"C10", "still buffered", func(h *History) { h.Final.Ledger.Buffered = 1 }},
		"a trace":    {"C10", "left", func(h *History) { h.Final.Leftover = []string{"m:kart"} }},
		"goroutines": {"C11", "go_goroutines", func(h *History) { h.Processes[0].Last["go_goroutines"] = 105 }},
		"a metric too high": {"C11", "9 delivered", func(h *History) {
			h.Processes[0].Last[`spillway_drain_entries_total{namespace="default",outcome="delivered"}`] = 9
		}},
		"a metric too low": {"C11", "7 delivered", func(h *History) {
			h.Processes[0].Last[`spillway_drain_entries_total{namespace="default",outcome="delivered"}`] = 7
		}},
		"an expiry too many": {"C11", "1 expired, the ledgers 0", func(h *History) {
			h.Processes[0].Last[`spillway_store_janitor_expired_total{pool="default"}`] = 1
		}},
		"a panic":        {"C11", "panicked", func(h *History) { h.Processes[0].Last["spillway_ingest_panics_total"] = 1 }},
		"too few acks":   {"C12", "acknowledged", func(h *History) { h.Floor.Acks = 9 }},
		"no unknown":     {"C12", "unknown", func(h *History) { h.Floor.Unknowns = 2 }},
		"too few taken":  {"C12", "taken", func(h *History) { h.Floor.Taken = 9 }},
		"too few faults": {"C12", "faults", func(h *History) { h.Floor.Faults = 2 }},
		"only accidents": {"C12", "faults", func(h *History) { h.Faults[0].Kind, h.Faults[0].Target = KindStop, Machine }},
		"no samples":     {"C12", "sample", func(h *History) { h.Samples = nil }},
		"keys": {"C13", "the keys hold 6", func(h *History) {
			h.All = []Namespace{{Counted: 6, Ledger: map[string]int64{"ready": 7}}}
		}},
		"twice at most once": {"C14", "presented again", func(h *History) {
			h.All = []Namespace{{Once: true, Sent: h.Sent, Posts: append(h.Posts, h.Posts[0]), Ledger: map[string]int64{"accepted": 8}}}
		}},
		"a batch of a group": {"C14", "3 entries did not arrive", func(h *History) {
			h.All = []Namespace{{Sent: h.Sent, Posts: []Post{h.Posts[1], post(600, 200, 1)}, Ledger: map[string]int64{"accepted": 8, "dead": 1}}}
		}},
		"an acknowledgement that a promoted replica lacks": {"C2", "only 7 accepted", func(h *History) {
			h.Policy.Replicated, h.Final.Ledger.Accepted = true, 7
			h.Samples = append(h.Samples, Sample{At: at(16), Ledger: map[string]int64{}})
		}},
		"a forgotten pause": {"C15", "not listed", func(h *History) { h.Pauses = []Pause{{Partition: "other"}} }},
		"a pause that nobody heeds": {"C15", "paused partition", func(h *History) {
			h.Pauses = []Pause{{Partition: "kart", From: at(-4000), To: at(5000), Listed: true}}
		}},
		"an acknowledgement elsewhere": {"C14", "8 were acknowledged", func(h *History) { h.All = []Namespace{{Once: true, Sent: h.Sent}} }},
	} {
		h := good()
		broken.change(h)
		got := Run(h)
		if !slices.ContainsFunc(got, func(v Violation) bool { return v.Check == broken.check && strings.Contains(v.Text, broken.text) }) {
			t.Errorf("%s: got %v, want %s: …%s…", name, got, broken.check, broken.text)
		}
	}
}

func TestAPayloadIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, p := range []Payload{
		{UID: 1, Partition: "kart", Intact: true},
		{UID: 1 << 63, Partition: "a.b-c_D", Poison: true, Intact: true},
	} {
		raw := p.Append([]byte("before"), 17)[len("before"):]
		if got := ParsePayload(raw); got != p {
			t.Errorf("got %+v, want %+v", got, p)
		}
		for i := range raw {
			harmed := slices.Clone(raw)
			harmed[i] ^= 1
			if got := ParsePayload(harmed); got.Intact {
				t.Errorf("byte %d of %s changed, and it is intact", i, raw)
			}
		}
	}
}

// step is the store's clock from a moment on.
func step(ms, ahead int) Fault {
	return Fault{Kind: KindClockStep, Target: "redis", From: at(ms), To: at(ms + 1), Offset: time.Duration(ahead) * time.Millisecond}
}

// Each row breaks a check where the clock stood still, and not where it stepped at the right time.
func TestAClockStepAllowsWhatItExplainsAndNoMore(t *testing.T) {
	t.Parallel()
	job := func(change func(*Jobs)) func(*History) {
		return func(h *History) {
			h.Jobs = goodJobs()
			change(h.Jobs)
		}
	}
	for name, row := range map[string]struct {
		check  string
		change func(*History)
		steps  []Fault // that explain it
		others []Fault // that do not
	}{
		"stale by the clock from before": {"C8",
			func(h *History) { h.Posts[0].Lines[0].TS = at(-5000).UnixMilli() },
			[]Fault{step(-1, -4000)}, []Fault{step(-6000, 4000)}},
		"first presented after its successors": {"C7",
			func(h *History) { h.Posts = append(h.Posts[1:], post(2100, 200, 1, 2, 3)) },
			[]Fault{step(-500, 4000)}, []Fault{step(-500, -4000), step(-6000, 4000)}},
		"presented while another holds it": {"C7",
			func(h *History) { h.Posts = append(h.Posts, post(700, 200, 9)) },
			[]Fault{step(650, 4000)}, []Fault{step(650, -4000)}},
		"handed out after its ack": {"J4",
			job(func(j *Jobs) {
				j.Deliveries[2].Claimed = at(4000)
				j.Deliveries[2].Got = at(4000)
				j.Settled[2].End = at(60)
			}),
			[]Fault{step(20, 3950)}, []Fault{step(100, 3900), step(20, -3950)}},
		"before its delay": {"J5",
			job(func(j *Jobs) { j.Deliveries[3].Claimed = at(90); j.Deliveries[3].Got = at(200) }),
			[]Fault{step(110, -110)}, []Fault{step(110, 100), step(80, -10)}},
		"after its ttl": {"J5",
			job(func(j *Jobs) { j.Deliveries[3].Claimed = at(1500); j.Deliveries[3].Got = at(1600) }),
			[]Fault{step(-100, 600)}, []Fault{step(500, 600)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := func(steps ...Fault) bool {
				h := good()
				row.change(h)
				h.Policy.Lease = 2 * time.Second
				h.Faults = append(h.Faults, steps...)
				for _, v := range Run(h) {
					if strings.HasPrefix(v.String(), row.check+": ") {
						return true
					}
				}
				return false
			}
			if !broken() {
				t.Errorf("%s holds without a step", row.check)
			}
			if broken(row.steps...) {
				t.Errorf("%s is broken although the clock stepped", row.check)
			}
			for _, other := range row.others {
				if !broken(other) {
					t.Errorf("%s holds with %+v", row.check, other)
				}
			}
		})
	}
}
