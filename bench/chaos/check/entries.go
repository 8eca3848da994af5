package check

import (
	"sort"
	"time"
)

// A place is where an entry is in the store.
type place struct {
	partition string
	seq       int64
}

// identity is C3 and C4: entries and sequences belong together one to one, and
// come out unharmed.
func (r *run) identity() {
	places, owners := map[uint64]place{}, map[place]uint64{}
	var twice, harmed, strayed, strangers, shared tally
	for i := range r.Posts {
		p := &r.Posts[i]
		for _, l := range p.Lines {
			at, uid := place{p.Partition, l.Seq}, l.Data.UID
			sent, known := r.sent[uid]
			switch {
			case !l.Data.Intact:
				harmed.add("%s seq %d, batch %s of %s", p.Partition, l.Seq, p.Batch, p.Worker)
				continue
			case !known:
				strangers.add("uid %d in %s", uid, p.Partition)
			case l.Data.Partition != p.Partition || sent.Partition != p.Partition:
				strayed.add("uid %d of %s came out of %s", uid, sent.Partition, p.Partition)
			}
			if was, ok := places[uid]; ok && was != at {
				twice.add("uid %d is seq %d of %s and seq %d of %s", uid, was.seq, was.partition, l.Seq, p.Partition)
			}
			if was, ok := owners[at]; ok && was != uid && !r.Policy.Forgets {
				shared.add("seq %d of %s was uid %d and is uid %d", l.Seq, p.Partition, was, uid)
			}
			places[uid], owners[at] = at, uid
		}
	}
	r.failAll("C3", twice, "entries were stored twice")
	r.failAll("C4", harmed, "payloads are not what was sent")
	r.failAll("C4", strangers, "entries were never sent")
	r.failAll("C4", strayed, "entries changed their partition")
	r.failAll("C4", shared, "sequences were given to two entries")
}

// tolerance covers what a server's idea of the store's clock may be off by after
// a reply that a stalled store held back, and a busy machine.
const tolerance = time.Second

// missing is C5, and the parts of C8 and C9 that go by what did not arrive: an
// acknowledged entry that the sink does not have, and that is no dead letter,
// must have been evicted or have expired, and it must have been its turn.
func (r *run) missing() {
	l := r.Final.Ledger
	byPartition := map[string][]*Sent{}
	for i := range r.Sent {
		if s := &r.Sent[i]; s.Outcome != Rejected {
			byPartition[s.Partition] = append(byPartition[s.Partition], s)
		}
	}
	var silent, young, recent tally
	var n int64
	posts := map[string][]*Post{}
	for i := range r.Posts {
		p := &r.Posts[i]
		posts[p.Partition] = append(posts[p.Partition], p)
	}
	for name, all := range byPartition {
		t := newTimeline(all, posts[name], r.sent)
		for _, s := range all {
			if s.Outcome != Acked || r.kept[s.UID] || r.dead[s.UID] {
				continue
			}
			n++
			overflowed := l.Evicted+r.Final.Reclaimed > 0 && t.after(s) >= r.Policy.Capacity
			passed := r.aged(t.passed(s, r.Ended), s.Start)
			// The drain may give an entry up a quarter of its life before the end.
			outlived := l.Expired > 0 && passed >= r.Policy.MaxAge*3/4-tolerance
			switch {
			case overflowed || outlived:
			case l.Buffered > 0: // it may be there yet, which C10 is about
			case l.Expired > 0 && l.Evicted+r.Final.Reclaimed == 0:
				young.add("uid %d of %s was %v old at most", s.UID, s.Partition, passed.Round(time.Millisecond))
			case l.Evicted+r.Final.Reclaimed > 0 && l.Expired == 0:
				recent.add("uid %d of %s, with %d after it", s.UID, s.Partition, t.after(s))
			default:
				silent.add("uid %d of %s", s.UID, s.Partition)
			}
		}
	}
	r.failAll("C5", silent, "acknowledged entries vanished silently")
	r.failAll("C8", young, "entries expired while they were fresh")
	r.failAll("C9", recent, "entries were evicted although they were not the oldest")
	if covered := l.Evicted + l.Expired + l.Lost + l.Buffered + r.Final.DeadEvicted; n > covered {
		r.fail("C5", "%d acknowledged entries did not arrive, the ledger covers %d", n, covered)
	}
}

// A timeline is the entries of one partition by when they were sent, and its
// posts by when they came.
type timeline struct {
	ends  []time.Time // of the requests, rising
	posts []*Post
	last  []time.Time     // by post: when the youngest of its entries was sent
	shown map[uint64]bool // whether an entry was ever presented
}

func newTimeline(entries []*Sent, posts []*Post, sent map[uint64]*Sent) *timeline {
	t := &timeline{posts: posts, last: make([]time.Time, len(posts)), shown: map[uint64]bool{}}
	for _, s := range entries {
		t.ends = append(t.ends, s.End)
	}
	sort.Slice(t.ends, func(i, j int) bool { return t.ends[i].Before(t.ends[j]) })
	for i, p := range posts {
		for _, l := range p.Lines {
			t.shown[l.Data.UID] = true
			if s := sent[l.Data.UID]; s != nil && s.Start.After(t.last[i]) {
				t.last[i] = s.Start
			}
		}
	}
	return t
}

// after is how many entries may have come after s: all that were not answered
// before it was sent.
func (t *timeline) after(s *Sent) int {
	before := sort.Search(len(t.ends), func(i int) bool { return !t.ends[i].Before(s.Start) })
	return len(t.ends) - before - 1
}

// passed is how old s was at most when the store was done with it: at the latest
// when something that certainly came after it was presented without it. One
// that the sink saw and did not take says nothing: the search for a poison entry
// presents those behind it before its own end is settled, and a crash then lets
// it come back and go stale.
func (t *timeline) passed(s *Sent, end time.Time) time.Duration {
	if t.shown[s.UID] {
		return end.Sub(s.Start)
	}
	for i := range t.posts {
		if t.last[i].After(s.End) {
			end = t.posts[i].At
			break
		}
	}
	return end.Sub(s.Start)
}
