package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/space"
)

// A judge knows what the processes were told, and finds what contradicts the promises.
type judge struct {
	fail      func(format string, args ...any)
	rollbacks bool
	step      int
	calls     int // of produce

	uids    int
	sends   map[int]*walkSend // by entry
	keyed   []*walkSend
	seqs    map[int]int64    // of each entry that was claimed
	entryAt map[string]int   // partition/seq → entry
	highest map[string]int64 // sequence of the newest entry that was claimed, by partition
	newest  map[string]int   // when the newest entry of a partition that was claimed was sent first
	inCall  map[string]int   // the newest entry that was claimed, by partition and call
	settled map[int]string   // entry → its class
	leases  []*walkLease
	lapses  int
	pauses  map[string]*walkPause // by partition, "" = all

	purged               int
	purges, purgedUnsure bool
}

// A walkSend is the entries that belong to one group, and what is known of it.
type walkSend struct {
	partition, key string
	uids           []int
	call           int // the first one
	sent           int // step of the first try
	tries          int
	acked          int // step of the first answer that they are stored; 0: none
	stored         int // answers that they were stored just then
	unknown        bool
}

type walkLease struct {
	*Lease
	owner  *process
	lo     int64 // what is left begins here
	lapsed bool
	unsure bool // an answer was lost
	busy   bool // a commit or release is under way
	ended  bool
}

// A walkPause is what is known of the pause of a partition.
type walkPause struct {
	changes  int // calls so far
	underWay int
	crossed  bool   // two were under way at once: each may have been first in one of the homes
	state    string // "paused", "resumed", or "" = it may be either
}

func newJudge() judge {
	return judge{
		sends: map[int]*walkSend{}, seqs: map[int]int64{}, entryAt: map[string]int{}, highest: map[string]int64{},
		newest: map[string]int{}, inCall: map[string]int{}, settled: map[int]string{}, pauses: map[string]*walkPause{},
	}
}

func (j *judge) send(partition string, n int, keyed bool) *walkSend {
	s := &walkSend{partition: partition, sent: j.step, call: j.calls}
	for range n {
		j.uids++
		s.uids = append(s.uids, j.uids)
		j.sends[j.uids] = s
	}
	if keyed {
		s.key = fmt.Sprint("key", j.uids)
		j.keyed = append(j.keyed, s)
	}
	return s
}

// stored takes the answer to a produce.
func (j *judge) stored(s *walkSend, g *Group) {
	switch {
	case errors.Is(g.Err, ErrUnknown):
		s.unknown = true
		return
	case g.Err != nil:
		return
	case g.Repeated && s.tries == 1:
		j.fail("%s %v was never stored, and the answer is that of a repeat", s.partition, s.uids)
	case g.Accepted != len(s.uids):
		j.fail("%s %v: %d accepted", s.partition, s.uids, g.Accepted)
	case !g.Repeated:
		s.stored++
	}
	if s.stored > 1 && !j.rollbacks {
		j.fail("%s %v was stored twice under its key", s.partition, s.uids)
	}
	if s.acked == 0 {
		s.acked = j.step
	}
}

// leased takes a lease. pauses are those that were certain before the claim was sent.
func (j *judge) leased(p *process, l *Lease, pauses map[string]bool) {
	if j.rollbacks {
		j.leases = append(j.leases, &walkLease{Lease: l, owner: p, lo: l.From})
		return
	}
	for name := range pauses {
		if (name == "" || name == l.Partition) && j.certainPauses()[name] {
			j.fail("%s is leased while %q is paused", l.Partition, name)
		}
	}
	for _, o := range j.leases {
		if o.Partition == l.Partition && !o.lapsed && !o.unsure && !o.busy && !o.ended {
			j.fail("%s is leased twice", l.Partition)
		}
	}
	for _, e := range l.Entries {
		uid, _ := strconv.Atoi(string(e.Payload))
		j.shown(l.Partition, uid, e.Seq)
	}
	j.leases = append(j.leases, &walkLease{Lease: l, owner: p, lo: l.From})
}

// shown is called for each entry that a drainer would hand to its sink.
func (j *judge) shown(partition string, uid int, seq int64) {
	s := j.sends[uid]
	switch old, known := j.seqs[uid]; {
	case s == nil || s.partition != partition:
		j.fail("%s has entry %d, which was not sent to it", partition, uid)
	case j.settled[uid] != "":
		j.fail("%s: entry %d is given out again, and was %s", partition, uid, j.settled[uid])
	case known && old != seq:
		j.fail("%s: entry %d is stored twice, at %d and at %d", partition, uid, old, seq)
	case known:
		return
	}
	at := fmt.Sprintf("%s/%d", partition, seq)
	if other := j.entryAt[at]; other != 0 {
		j.fail("%s is the sequence of %d and of %d", at, other, uid)
	}
	if seq >= 1<<53 {
		j.fail("%s: sequence %d is beyond 2^53", partition, seq)
	}
	if seq <= j.highest[partition] {
		j.fail("%s: sequence %d of entry %d comes after %d", partition, seq, uid, j.highest[partition])
	}
	if s.acked > 0 && s.acked < j.newest[partition] {
		j.fail("%s: entry %d was acknowledged in step %d, and comes after one that was sent in step %d", partition, uid, s.acked, j.newest[partition])
	}
	if s.tries == 1 {
		call := fmt.Sprint(partition, " ", s.call)
		if last := j.inCall[call]; uid < last {
			j.fail("%s: entry %d comes after %d, which was behind it in one call", partition, uid, last)
		}
		j.inCall[call] = uid
	}
	j.seqs[uid], j.entryAt[at], j.highest[partition] = seq, uid, seq
	j.newest[partition] = max(j.newest[partition], s.sent)
}

func (j *judge) lapse() {
	j.lapses++
	for _, l := range j.leases {
		l.lapsed = true
	}
}

func (j *judge) released(l *walkLease, err error) {
	l.busy = false
	j.settleError(l, "release", err)
	l.unsure = l.unsure || err != nil
	l.ended = true
}

func (j *judge) committed(l *walkLease, c *Commit) {
	l.busy = false
	if j.settleError(l, "commit", c.Err); c.Err != nil {
		l.unsure = true
		return
	}
	l.lo = max(l.lo, c.Hi)
	l.ended = l.lo == l.To
	if c.AlreadyApplied {
		if !l.unsure && !j.rollbacks {
			j.fail("commit of %s [%d, %d): applied already", l.Partition, c.Lo, c.Hi)
		}
		return
	}
	for i, e := range l.Entries[c.Lo-l.From : c.Hi-l.From] {
		uid, _ := strconv.Atoi(string(e.Payload))
		if j.settled[uid] != "" && !j.rollbacks {
			j.fail("%s: entry %d is settled a second time", l.Partition, uid)
		}
		j.settled[uid] = "delivered"
		if i < c.Dead {
			j.settled[uid] = "dead"
		}
	}
}

func (j *judge) settleError(l *walkLease, what string, err error) {
	var other *RangeError
	if ended := errors.Is(err, ErrGone) || errors.As(err, &other); ended {
		if !l.lapsed && !l.unsure && !l.ended && !j.rollbacks {
			j.fail("%s of %s: %v", what, l.Partition, err)
		}
		l.ended = true
	}
}

func (j *judge) changePause(name string) int {
	if j.pauses[name] == nil {
		j.pauses[name] = &walkPause{}
	}
	p := j.pauses[name]
	p.changes++
	p.crossed = p.crossed || p.underWay > 0
	p.underWay++
	p.state = ""
	return p.changes
}

func (j *judge) pauseChanged(name string, change int, paused bool, err error) {
	p := j.pauses[name]
	p.underWay--
	crossed := p.crossed
	p.crossed = p.underWay > 0
	if err != nil || p.underWay > 0 || crossed || p.changes != change {
		return
	}
	p.state = "resumed"
	if paused {
		p.state = "paused"
	}
}

func (j *judge) certainPauses() map[string]bool {
	all := map[string]bool{}
	for name, p := range j.pauses {
		if p.state == "paused" {
			all[name] = true
		}
	}
	return all
}

// shardSums are what the ledgers say, of each shard.
type shardSums struct {
	accepted, delivered, evicted, expired, dead, lost int64
}

// checkShards compares each ledger with the lists of its shard, which is right at every moment.
func (w *walker) checkShards() (sum shardSums, stored int64) {
	ctx := context.Background()
	lists := map[string][]string{}
	for _, key := range w.keys("*:q:*") {
		prefix, _, _ := splitPartitionKey(key)
		lists[prefix] = append(lists[prefix], key)
	}
	for i, server := range w.servers {
		tx := server.TxPipeline()
		ledgers, lengths := map[string]*redis.MapStringStringCmd{}, map[string][]*redis.IntCmd{}
		for _, key := range w.keys("*ledger") {
			prefix := strings.TrimSuffix(key, "ledger")
			ledgers[prefix] = tx.HGetAll(ctx, key)
			for _, list := range lists[prefix] {
				lengths[prefix] = append(lengths[prefix], tx.LLen(ctx, list))
			}
		}
		if _, err := tx.Exec(ctx); err != nil {
			w.Fatal(err)
		}
		for prefix, cmd := range ledgers {
			here := int64(0)
			for _, length := range lengths[prefix] {
				here += length.Val()
			}
			w.checkShard(fmt.Sprintf("%s on server %d", prefix, i), cmd.Val(), here, &sum)
			stored += here
		}
	}
	return sum, stored
}

// checkShard compares one ledger with what is stored, and adds it to the sum.
func (w *walker) checkShard(name string, f map[string]string, here int64, sum *shardSums) {
	n := func(name string) int64 { n, _ := strconv.ParseInt(f[name], 10, 64); return n }
	s := shardSums{n("accepted"), n("delivered"), n("evicted") - n("reclaimed"), n("expired"), n("dead"), n("lost") + n("lost_count")}
	if left := s.accepted - s.delivered - s.evicted - s.expired - s.dead - s.lost; left != here {
		w.violation("%s: the ledger says that %d entries are stored, the lists hold %d: %v", name, left, here, f)
	}
	if f["closed"] != "" && here > 0 {
		w.violation("%s is closed and holds %d entries", name, here)
	}
	sum.accepted += s.accepted
	sum.delivered += s.delivered
	sum.evicted += s.evicted
	sum.expired += s.expired
	sum.dead += s.dead
	sum.lost += s.lost
}

// end lets everybody go on, and looks whether what is not paused drains, then everything, and
// whether the older layouts are closed then and the sums are right.
func (w *walker) end() {
	for _, p := range w.processes {
		if p.frozen {
			w.thaw(p)
		}
	}
	last := w.open(1)
	w.ending = true
	for _, p := range w.processes { // those that know more mend what a failover lost
		w.catchUp(p)
	}
	w.note("all go on; %s drains", last.name)
	paused := w.certainPauses()
	for name, p := range w.pauses {
		if p.state == "" {
			w.mustResume(last, name)
		}
	}
	if !w.rollbacks && !paused[""] {
		w.drain(last, "all that is not paused", func() bool {
			for _, key := range w.keys("*:q:*") {
				if _, name, _ := splitPartitionKey(key); !paused[name] {
					return false
				}
			}
			return true
		})
	}
	for name := range w.pauses {
		w.mustResume(last, name)
	}
	w.drain(last, "everything, and the older layouts are closed", func() bool {
		return len(w.keys("*:q:*")) == 0 && len(last.ns.home.Layouts().Open()) == 1
	})
	w.checkEnd(last)
}

func (w *walker) mustResume(p *process, name string) {
	if _, err := p.ns.store.Resume(context.Background(), p.ns, name); err != nil {
		w.violation("resume of %q: %v", name, err)
	}
	w.pauses[name].state = "resumed"
	w.note("%s resumes %q", p.name, name)
}

// drain has the last process work until nothing is left to do.
func (w *walker) drain(p *process, what string, done func() bool) {
	for range 60 {
		w.step++
		w.timePasses()
		w.catchUp(w.processes[w.rnd.IntN(len(w.processes))])
		w.drainOnce(p)
		w.catchUp(p)
		w.checkShards()
		if done() {
			return
		}
	}
	w.note("%s knows %s; keys %v", p.name, p.known(), w.keys("*"))
	w.violation("does not come to its end: %s", what)
}

func (w *walker) catchUp(p *process) {
	ctx := context.Background()
	p.store.space.ReadRecords(ctx, []*space.Home{p.ns.home})
	if now, ok := p.store.Now(); ok {
		p.store.tidyLayouts(ctx, p.ns, now)
	}
}

// drainOnce claims and commits what is due.
func (w *walker) drainOnce(p *process) {
	ctx := context.Background()
	numbers, _ := p.ns.OpenShards()
	for _, number := range numbers {
		due, _, err := p.store.Due(ctx, p.ns, number, 0, 10)
		w.noBreakage("due", err)
		for _, d := range due {
			began, lapses, pauses := w.step, w.lapses, w.certainPauses()
			request := ClaimRequest{Namespace: p.ns, Partition: d.Partition, MaxBatches: 8, Shard: number}
			for _, c := range p.ns.store.Claim(ctx, []ClaimRequest{request}, 3600e9) {
				w.claimed(p, &c, began, lapses, pauses)
				if c.Lease == nil {
					continue
				}
				l := w.leases[len(w.leases)-1]
				if l.Lease != c.Lease {
					continue // it came too late
				}
				commit := &Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
				p.store.Commit(ctx, []*Commit{commit})
				w.committed(l, commit)
			}
		}
	}
}

// checkEnd compares the sums with what the processes were told.
func (w *walker) checkEnd(p *process) {
	sum, stored := w.checkShards()
	least, most := int64(0), int64(0)
	for _, s := range w.sends {
		if s.acked > 0 {
			least++
			most++
		} else if s.unknown {
			most++
		}
	}
	ctx := context.Background()
	o, err := p.ns.store.Overview(ctx, p.ns)
	residual, wrong := p.ns.store.Audit(ctx, p.ns)
	if err != nil || wrong != nil || residual != 0 {
		w.violation("audit: residual %d, %v, %v", residual, err, wrong)
	}
	if l := o.Ledger; l.Accepted != sum.accepted || l.Delivered != sum.delivered || l.Dead != sum.dead || l.Buffered != 0 || stored != 0 {
		w.violation("the overview says %+v, the ledgers say %+v", l, sum)
	}
	letters, page := int64(0), DeadPage{}
	for more := true; more; more = page.Next != "" {
		if page, err = p.ns.store.DeadLetters(ctx, p.ns, page.Next, 100); err != nil {
			w.violation("dead letters: %v", err)
		}
		letters += int64(len(page.Letters))
	}
	if letters != sum.dead {
		w.violation("%d dead letters are listed, %d entries are dead", letters, sum.dead)
	}
	if w.rollbacks {
		return
	}
	if sum.accepted < least || sum.accepted > most {
		w.violation("%d entries were accepted, %d were acknowledged, at most %d can be stored", sum.accepted, least, most)
	}
	if sum.lost != 0 || sum.expired != 0 || sum.evicted < int64(w.purged) || !w.purgedUnsure && sum.evicted != int64(w.purged) {
		w.violation("%+v, and %d were purged", sum, w.purged)
	}
	for uid, s := range w.sends {
		if s.acked > 0 && !w.purges && w.seqs[uid] == 0 {
			w.violation("%s: entry %d was acknowledged and never came", s.partition, uid)
		}
	}
	known := map[string]int64{}
	for _, class := range w.settled {
		known[class]++
	}
	if known["delivered"] > sum.delivered || known["dead"] > sum.dead {
		w.violation("%v were committed, the ledgers say %+v", known, sum)
	}
	for _, key := range w.keys("*") {
		end := key[strings.LastIndex(key, "}:")+2:]
		if !slices.Contains([]string{"ledger", "dead", "layout"}, end) && !strings.HasPrefix(end, "dd:") {
			w.violation("%s is left", key)
		}
	}
}
