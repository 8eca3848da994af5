package layoutmodel

import "slices"

// Jobs stay in the shard where they were published until they end, because their ids name it. So other
// shards move no job: a publish goes to the newest layout, and claims go to the oldest first.

type Job struct {
	seq, uid, q, cid, attempts int
	state                      string // ready, delayed, leased or dead
	due                        int    // delayed: when; leased: the deadline
	plain                      bool   // ready from its publish on
}

type QLedger struct{ published, acked, deleted int }

type result struct{ seq, until int }

// A QShard is a shard of queues: each method is one script, or one pipeline that only reads.
type QShard struct {
	fenceState
	w       *World
	id      ID
	skew    int
	seq     int
	jobs    map[int]*Job
	ready   map[int][]int // queue → sequences
	cids    map[[2]int]int
	results map[DDKey]result
	L       QLedger
}

// queues are what walks of queues have beside the World.
type queues struct {
	shards map[ID]*QShard
	jobs   map[int]*jobGhost // by uid
	keys   map[int]int       // key → uid of what was stored under it
	live   map[[2]int]int    // queue, caller's id → uid
	latest map[int]int       // by queue: the latest send of a plain job that was claimed first
	ids    []jobID           // that clients hold, also of jobs that ended
}

type jobGhost struct {
	q, sent, acked           int // acked: when its publish was confirmed; 0: it was not
	stored, claimed          bool
	ended                    string
	endConfirmed             bool
	deliveries, maxDelivered int
}

type jobID struct{ number, seq, q, uid int }

const tries = 3

func (q *queues) shard(w *World, id ID) *QShard {
	s := q.shards[id]
	if s == nil {
		s = &QShard{w: w, id: id, skew: w.skew(), fenceState: newFence(id), jobs: map[int]*Job{}, ready: map[int][]int{},
			cids: map[[2]int]int{}, results: map[DDKey]result{}}
		q.shards[id] = s
	}
	return s
}

func (s *QShard) copy() *QShard {
	c := *s
	c.fenceState, c.cids, c.results = s.fenceState.copy(), cloneMap(s.cids), cloneMap(s.results)
	c.jobs, c.ready = map[int]*Job{}, map[int][]int{}
	for k, v := range s.jobs {
		j := *v
		c.jobs[k] = &j
	}
	for k, v := range s.ready {
		c.ready[k] = slices.Clone(v)
	}
	return &c
}

func (s *QShard) now() int { return s.w.clock + s.skew }

func (s *QShard) raise(r Record) Fenced { return s.fenceState.raise(s.w, s.id, r, max(s.now(), s.seq)) }

func (s *QShard) fenced() bool { return s.fence > s.id.layout }

type Published struct {
	moved  bool
	rec    Record
	status string // stored, repeated or exists; empty: nothing is known of it
	seq    int
}

// stored is what the shard knows of a key and a caller's id.
func (s *QShard) stored(q, cid, key int) Published {
	if v, ok := s.results[DDKey{q, key}]; key != 0 && ok && v.until > s.now() {
		return Published{status: "repeated", seq: v.seq}
	}
	if seq, ok := s.cids[[2]int{q, cid}]; cid != 0 && ok {
		return Published{status: "exists", seq: seq}
	}
	return Published{}
}

func (s *QShard) publish(r Record, q, cid, key, uid, delay int) Published {
	if s.fenced() && !s.w.bug("publish-unfenced") {
		return Published{moved: true, rec: s.known}
	}
	s.known = s.known.join(r) // its caller left it there, when it fenced the older ones
	if known := s.stored(q, cid, key); known.status != "" {
		return known
	}
	s.seq = max(s.now(), s.seq+1)
	j := &Job{seq: s.seq, uid: uid, q: q, cid: cid, plain: delay == 0}
	s.jobs[j.seq] = j
	if cid != 0 {
		s.cids[[2]int{q, cid}] = j.seq
	}
	if key != 0 {
		s.results[DDKey{q, key}] = result{j.seq, s.now() + s.w.window}
	}
	if j.state, j.due = "delayed", s.now()+delay; delay == 0 {
		s.push(j)
	}
	s.L.published++
	s.w.q.published(s.w, j, key)
	s.w.tr("publish %v q%d job %d seq %d %s", s.id, q, uid, j.seq, j.state)
	return Published{status: "stored", seq: j.seq}
}

func (s *QShard) push(j *Job) {
	j.state = "ready"
	s.ready[j.q] = append(s.ready[j.q], j.seq)
}

func (s *QShard) claim(q, n int) (jobs []Job) {
	for len(jobs) < n && len(s.ready[q]) > 0 {
		j := s.jobs[s.ready[q][0]]
		s.ready[q] = s.ready[q][1:]
		j.state, j.due = "leased", s.now()+leaseLen
		j.attempts++
		s.w.tr("claim %v q%d job %d attempt %d", s.id, q, j.uid, j.attempts)
		s.w.q.delivered(s.w, j)
		jobs = append(jobs, *j)
	}
	return jobs
}

// ack ends a job whatever its state. meant is the one that the client means.
func (s *QShard) ack(q, seq, meant int) (found bool) {
	j := s.jobs[seq]
	if j == nil || j.q != q {
		s.w.q.gone(s.w, meant)
		return false
	}
	if j.uid != meant && !s.w.rollbacks {
		s.w.fail("an ack of job %d ended job %d", meant, j.uid)
	}
	s.end(j, "acked")
	return true
}

func (s *QShard) end(j *Job, how string) {
	delete(s.jobs, j.seq)
	if s.cids[[2]int{j.q, j.cid}] == j.seq {
		delete(s.cids, [2]int{j.q, j.cid})
	}
	if i := slices.Index(s.ready[j.q], j.seq); i >= 0 {
		s.ready[j.q] = slices.Delete(s.ready[j.q], i, i+1)
	}
	if how == "acked" {
		s.L.acked++
	} else {
		s.L.deleted++
	}
	s.w.q.ended(s.w, j, how)
}

func (s *QShard) nack(seq, attempt, wait int) {
	if j := s.jobs[seq]; j != nil && j.state == "leased" && j.attempts == attempt {
		s.failed(j, wait)
	}
}

func (s *QShard) failed(j *Job, wait int) {
	switch {
	case j.attempts >= tries:
		j.state = "dead"
	case wait > 0:
		j.state, j.due = "delayed", s.now()+wait
	default:
		s.push(j)
	}
}

// promote makes ready what is due, and ends leases that lapsed.
func (s *QShard) promote() {
	for _, j := range s.sorted() {
		switch {
		case j.due > s.now():
		case j.state == "delayed":
			s.push(j)
		case j.state == "leased":
			s.failed(j, 0)
		}
	}
}

// respawn makes a dead job ready where it is, also in a fenced shard; or it deletes it.
func (s *QShard) respawn(deletes bool) {
	for _, j := range s.sorted() {
		if j.state == "dead" && deletes {
			s.end(j, "deleted")
		} else if j.state == "dead" {
			j.attempts--
			s.w.q.jobs[j.uid].maxDelivered++
			s.push(j)
		}
	}
}

func (s *QShard) sorted() (list []*Job) {
	for _, j := range s.jobs {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *Job) int { return a.seq - b.seq })
	return list
}

// holds reports whether the shard is to stay open.
func (s *QShard) holds() bool {
	if !s.fenced() && !s.w.bug("close-unfenced") {
		return true
	}
	return slices.ContainsFunc(s.sorted(), func(j *Job) bool { return !s.w.bug("close-with-" + j.state) })
}

// ---- what must hold ----

func (q *queues) published(w *World, j *Job, key int) {
	g := q.jobs[j.uid]
	if w.rollbacks {
		return
	}
	if g.stored {
		w.fail("job %d is stored twice", j.uid)
	}
	g.stored = true
	if u, ok := q.keys[key]; key != 0 && ok && u != j.uid {
		w.fail("jobs %d and %d are stored under one key", u, j.uid)
	}
	q.keys[key] = j.uid
	if u, ok := q.live[[2]int{j.q, j.cid}]; j.cid != 0 && ok {
		w.fail("jobs %d and %d live with one caller's id", u, j.uid)
	}
	q.live[[2]int{j.q, j.cid}] = j.uid
}

func (q *queues) gone(w *World, uid int) {
	if g := q.jobs[uid]; g.stored && g.ended == "" && !w.rollbacks {
		w.fail("an ack of job %d finds none, although it lives", uid)
	}
}

func (q *queues) ended(w *World, j *Job, how string) {
	g := q.jobs[j.uid]
	if g.ended != "" && !w.rollbacks {
		w.fail("job %d ends twice", j.uid)
	}
	g.ended = how
	delete(q.live, [2]int{j.q, j.cid})
}

func (q *queues) delivered(w *World, j *Job) {
	g := q.jobs[j.uid]
	if g.deliveries++; w.rollbacks {
		return
	}
	if g.deliveries > g.maxDelivered {
		w.fail("job %d is delivered %d times", j.uid, g.deliveries)
	}
	if g.endConfirmed {
		w.fail("job %d is delivered after its ack was confirmed", j.uid)
	}
	if !g.claimed && j.plain {
		if g.acked != 0 && q.latest[j.q] > g.acked {
			w.fail("job %d, confirmed at %d, is claimed after one sent at %d", j.uid, g.acked, q.latest[j.q])
		}
		q.latest[j.q] = max(q.latest[j.q], g.sent)
	}
	g.claimed = true
}

func (q *queues) check(w *World) {
	sum, want := QLedger{}, QLedger{}
	for id, s := range q.shards {
		if s.L.published != s.L.acked+s.L.deleted+len(s.jobs) {
			w.fail("shard %v has the ledger %+v and %d jobs", id, s.L, len(s.jobs))
		}
		if !w.bug("sum-of-current") || id.layout == w.rec.current().n {
			sum = QLedger{sum.published + s.L.published, sum.acked + s.L.acked, sum.deleted + s.L.deleted}
		}
	}
	for uid, g := range q.jobs {
		switch {
		case g.ended == "" && g.acked != 0 && !w.rollbacks:
			w.fail("job %d vanished", uid)
		case g.ended == "acked":
			want.acked++
		case g.ended == "deleted":
			want.deleted++
		}
	}
	if want.published = want.acked + want.deleted; sum != want && !w.rollbacks {
		w.fail("the ledger is %+v, the jobs are %+v", sum, want)
	}
	w.stats["jobs"] += sum.published
}
