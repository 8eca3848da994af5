package phpmodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// flavor is what differs between PHP's libraries.
type flavor struct {
	name      string
	first     int64 // attempts of a payload that was never delivered
	onRelease bool  // attempts are counted when a payload goes back, not when it is handed out
	notify    bool  // Laravel's list of notifications
	atomic    bool  // PHP pops and releases in one script
}

var flavors = []flavor{{"think3", 0, false, false, false}, {"think2", 1, true, false, false}, {"laravel", 0, false, true, true}}

// begin is the store's clock when a walk begins, µs since 1970.
const begin = 1_795_378_000_123_456

// Queue is the keys of one queue. Scores are ms. bug names a mistake that is made on purpose.
type Queue struct {
	flavor            flavor
	us                int64 // the store's clock
	ready             []string
	delayed, reserved map[string]int64
	notify            int

	seq     int64
	account map[string]int64
	leases  map[int64]int64
	held    map[int64]record
	dead    map[int64]int64
	letters map[int64]letter
	outs    map[string]out
	known   map[string]int
	bug     string
}

type record struct{ payload, member, text string } // text: as the script keeps it
type letter struct{ reason, payload string }
type out struct {
	token string
	seqs  []int64
}

func newQueue(f flavor, bug string) *Queue {
	return &Queue{flavor: f, us: begin, delayed: map[string]int64{}, reserved: map[string]int64{}, account: map[string]int64{},
		leases: map[int64]int64{}, held: map[int64]record{}, dead: map[int64]int64{}, letters: map[int64]letter{},
		outs: map[string]out{}, known: map[string]int{}, bug: bug}
}

func (q *Queue) now() int64         { return q.us / 1000 }
func (q *Queue) setNow(us int64)    { q.us = us }
func (q *Queue) is(bug string) bool { return q.bug == bug }

func (q *Queue) add(name string, n int) {
	if n != 0 {
		q.account[name] += int64(n)
	}
}

func (q *Queue) place(set map[string]int64, score int64, payload string, seq int64) string {
	if _, there := set[payload]; !there || q.is("twins collapse") {
		set[payload] = score
		return payload
	}
	q.add("twins", 1)
	mark := fmt.Sprint(seq)
	for n := 1; ; n++ {
		member, _ := appendField(payload, `"spillway":"`+mark+`"`)
		if _, there := set[member]; !there {
			set[member] = score
			return member
		}
		mark = fmt.Sprint(seq, ".", n)
	}
}

func (q *Queue) push(payloads []string, inFront bool) {
	if inFront {
		q.ready = slices.Concat(payloads, q.ready)
	} else {
		q.ready = append(q.ready, payloads...)
	}
	if q.flavor.notify && !q.is("a notification is forgotten") {
		q.notify += len(payloads)
	}
}

// pop takes the n oldest.
func (q *Queue) pop(n int) []string {
	n = min(n, len(q.ready))
	all := q.ready[:n:n]
	q.ready = q.ready[n:]
	if q.flavor.notify && !q.is("notifications stay") {
		q.notify = max(0, q.notify-n)
	}
	return all
}

func (q *Queue) publish(delay int64, key string, payloads []string) (state, count int) {
	if n := q.known[key]; key != "" && n > 0 && !q.is("a key is not kept") {
		return 2, n
	}
	q.add("published", len(payloads))
	if delay == 0 {
		q.push(payloads, false)
	}
	for i, p := range payloads {
		if delay > 0 {
			q.place(q.delayed, q.now()+delay, p, q.us+int64(i)+1)
		}
	}
	q.known[key] = len(payloads)
	return 1, len(payloads)
}

// due is the members up to a time, in Redis's order.
func due[K cmp.Ordered](set map[K]int64, till int64) []K {
	var all []K
	for m, s := range set {
		if s <= till {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b K) int { return cmp.Or(cmp.Compare(set[a], set[b]), cmp.Compare(a, b)) })
	return all
}

func (q *Queue) moveDue(set map[string]int64, till int64, count bool) int {
	all := due(set, till)
	for i, m := range all {
		delete(set, m)
		if count {
			all[i] = counted(m, q.flavor.first)
		}
	}
	q.push(all, false)
	return len(all)
}

// holds is what a sequence of ours holds; false where the lease is gone.
func (q *Queue) holds(seq int64) (record, bool) {
	r, there := q.held[seq]
	score, reserved := q.reserved[r.member]
	return r, there && reserved && (score == q.leases[seq] || q.is("anybody holds a lease"))
}

func (q *Queue) endLease(seq int64) (record, bool) {
	r, holds := q.holds(seq)
	if holds && !q.is("an ended lease stays reserved") {
		delete(q.reserved, r.member)
	}
	delete(q.held, seq)
	delete(q.leases, seq)
	return r, holds
}

func (q *Queue) lapse() int {
	seqs := due(q.leases, q.now())
	var back []string
	for _, seq := range seqs {
		r, holds := q.endLease(seq)
		if holds || q.is("what PHP moved lapses again") {
			payload := r.member
			if q.flavor.onRelease && !q.is("a lapse does not count") {
				payload = counted(r.payload, q.flavor.first)
			}
			back = append(back, payload)
		}
	}
	q.push(back, false)
	return len(seqs)
}

type handed struct {
	seq, before, deadline int64
	payload               string
}

type claimed struct {
	moved, lapsed, unreadable, left int
	jobs                            []handed
}

func (q *Queue) deadline(ms int64) int64 {
	if at := q.now() + ms; at%1000 != 0 || q.is("a lease ends on a whole second") {
		return at
	}
	return q.now() + ms + 1
}

func (q *Queue) claim(lane, token string, ttr int64, count int, steal bool) claimed {
	early := map[bool]int64{true: 2000}
	c := claimed{moved: q.moveDue(q.delayed, q.now()+early[q.is("delayed ones come early")], false)}
	if !q.is("nothing lapses") {
		c.lapsed = q.lapse()
	}
	if steal {
		c.moved += q.moveDue(q.reserved, q.now()+30*early[q.is("a running reservation is taken")],
			q.flavor.onRelease && !q.is("what PHP let lapse is not counted"))
	}
	seq, deadline := max(q.us, q.seq+1), q.deadline(ttr)
	if q.is("sequences start again") {
		seq = q.us
	}
	var seqs []int64
	for len(c.jobs) < count && len(q.ready) > 0 {
		p := q.pop(1)[0]
		f, ok := attemptsOf(p)
		if ok {
			value := f.or(q.flavor.first)
			next := value + 1
			if q.flavor.onRelease || q.is("a claim does not count") {
				next = value
			}
			text, at := f.write(p, next)
			member := q.place(q.reserved, deadline, text, seq)
			q.held[seq] = record{p, member, fmt.Sprint(at+1, " ", len(p)-at, " ", p[at:], member)}
			q.leases[seq] = deadline
			if q.is("nothing is reserved") {
				delete(q.reserved, member)
			}
			c.jobs, seqs = append(c.jobs, handed{seq, value, deadline, p}), append(seqs, seq)
		} else {
			c.unreadable++
			if !q.is("what is no JSON is dropped") {
				q.dead[seq], q.letters[seq] = q.now(), letter{"unreadable", p}
			}
		}
		q.seq, seq = seq, seq+1
	}
	if len(seqs) > 0 {
		q.outs[lane] = out{token, seqs}
	}
	c.left = len(q.ready)
	q.add("moved", c.moved)
	q.add("lapsed", c.lapsed)
	q.add("claimed", len(c.jobs))
	q.add("unreadable", c.unreadable)
	q.add("died", c.unreadable)
	return c
}

// What settle answers.
const (
	gone = iota
	readyAgain
	delayedAgain
	deadNow
	acked
	_
	leased
)

// isLast tells whether PHP's worker would let a payload fail now.
func (q *Queue) isLast(payload string, delivery, tries int64) bool {
	var v struct{ RetryUntil, TimeoutAt, MaxTries *int64 }
	_ = json.Unmarshal([]byte(payload), &v)
	over := func(at *int64) bool { return at != nil && *at > 0 && *at <= q.now()/1000 }
	if over(v.RetryUntil) || over(v.TimeoutAt) {
		return true
	}
	if v.MaxTries != nil && !q.is("the tries of a payload are ignored") {
		tries = *v.MaxTries
	}
	return (v.RetryUntil == nil || *v.RetryUntil == 0) && tries > 0 && delivery >= tries && !q.is("nothing dies")
}

type settling struct {
	seq  int64
	verb string
	ms   int64
}

func (q *Queue) settle(tries int64, jobs ...settling) []int {
	var states []int
	var front, back []string
	for _, job := range jobs {
		state, payload := q.settleOne(tries, job)
		switch {
		case state != readyAgain:
		case job.verb == "requeue":
			front = append(front, payload)
		default:
			back = append(back, payload)
		}
		states = append(states, state)
	}
	q.push(front, true)
	q.push(back, false)
	return states
}

func (q *Queue) settleOne(tries int64, job settling) (state int, back string) {
	r, holds := q.holds(job.seq)
	if !holds {
		return gone, ""
	}
	if job.verb == "touch" {
		till := q.deadline(job.ms)
		q.reserved[r.member] = till
		if !q.is("a touch forgets the lease") {
			q.leases[job.seq] = till
		}
		return leased, ""
	}
	f, _ := attemptsOf(r.payload)
	last := q.isLast(r.payload, f.or(q.flavor.first)+1-q.flavor.first, tries)
	q.endLease(job.seq)
	switch job.verb {
	case "ack":
		q.add("acked", 1)
		return acked, ""
	case "requeue":
		q.add("requeued", 1)
		if q.is("a requeue counts") {
			return readyAgain, r.member
		}
		return readyAgain, r.payload
	case "bury", "unfit":
		name := map[string]string{"bury": "buried", "unfit": "unfit"}[job.verb]
		q.add(name, 1)
		return q.die(job.seq, r.member, name), ""
	}
	if job.verb == "nack" && last {
		q.add("buried", 1)
		return q.die(job.seq, r.member, "nacked"), ""
	}
	q.add("nacked", 1)
	back = r.member
	if q.flavor.onRelease && !q.is("a nack does not count") {
		back = counted(r.payload, q.flavor.first)
	}
	if job.ms > 0 {
		q.place(q.delayed, q.now()+job.ms, back, job.seq)
		return delayedAgain, ""
	}
	return readyAgain, back
}

func (q *Queue) die(seq int64, payload, reason string) int {
	q.dead[seq], q.letters[seq] = q.now(), letter{reason, payload}
	q.add("died", 1)
	return deadNow
}

func (q *Queue) revert(lane, token string) int {
	o, there := q.outs[lane]
	if !there || o.token != token && !q.is("any token reverts") {
		return 0
	}
	var back []string
	for _, seq := range o.seqs {
		if _, there := q.leases[seq]; !there {
			continue
		}
		if r, holds := q.endLease(seq); holds {
			back = append(back, r.payload)
			q.add("requeued", 1)
		} else {
			q.add("lapsed", 1)
		}
	}
	q.push(back, true)
	delete(q.outs, lane)
	return len(back)
}

func (q *Queue) respawn(remove bool, skip, count int) (done, kept, left int) {
	seqs := due(q.dead, 1<<62)
	for _, seq := range seqs[min(skip, len(seqs)):min(skip+count, len(seqs))] {
		l := q.letters[seq]
		if !remove && l.reason == "unreadable" {
			kept++
			continue
		}
		if !q.is("a respawned one stays dead") {
			delete(q.dead, seq)
			delete(q.letters, seq)
		}
		done++
		if remove {
			q.add("deleted", 1)
			continue
		}
		q.add("respawned", 1)
		if f, ok := attemptsOf(l.payload); ok && !q.is("a respawn keeps its attempts") {
			l.payload, _ = f.write(l.payload, q.flavor.first)
		}
		q.push([]string{l.payload}, false)
	}
	return done, kept, len(q.dead)
}

func (q *Queue) purge(all bool, count int) (looked, removed int) {
	looked = len(q.pop(count))
	purged := looked
	if all {
		for _, m := range due(q.delayed, 1<<62) {
			if looked < count {
				delete(q.delayed, m)
				looked, purged = looked+1, purged+1
			}
		}
		for _, seq := range due(q.leases, 1<<62) {
			if looked < count {
				looked++
				if _, holds := q.endLease(seq); holds {
					purged++
				}
				if !q.is("a purge forgets to count leases") {
					q.add("lapsed", 1)
				}
			}
		}
		if q.is("a purge takes PHP's reservations") {
			clear(q.reserved)
		}
		for _, seq := range due(q.dead, 1<<62) {
			if looked < count {
				looked, removed = looked+1, removed+1
				delete(q.dead, seq)
				delete(q.letters, seq)
				q.add("deleted", 1)
			}
		}
	}
	q.add("purged", purged)
	return looked, removed + purged
}

func (q *Queue) look() []int {
	return []int{len(q.ready), len(q.delayed), len(q.reserved), len(q.leases), len(q.dead)}
}

func (q *Queue) peek() string {
	if len(q.ready) == 0 {
		return ""
	}
	return q.ready[0]
}

func (q *Queue) get(seq int64) string {
	if r, holds := q.holds(seq); holds {
		return fmt.Sprint("leased ", q.leases[seq], "  ", r.payload)
	}
	if l, there := q.letters[seq]; there {
		return fmt.Sprint("dead ", q.dead[seq], " ", l.reason, " ", l.payload)
	}
	return ""
}

func (q *Queue) deadPage(skip, count int) (total int, letters []string) {
	seqs := due(q.dead, 1<<62)
	for _, seq := range seqs[min(skip, len(seqs)):min(skip+count, len(seqs))] {
		l := q.letters[seq]
		letters = append(letters, fmt.Sprint(seq, " ", q.dead[seq], " ", l.reason, " ", l.payload))
	}
	return len(seqs), letters
}

func anys(list []int64) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// picture is every key as the scripts keep it, in lines.
func (q *Queue) picture() []string {
	var lines []string
	line := func(parts ...any) { lines = append(lines, fmt.Sprintln(parts...)) }
	for i, p := range q.ready {
		line("ready", i, p)
	}
	for m, s := range q.delayed {
		line("delayed", s, m)
	}
	for m, s := range q.reserved {
		line("reserved", s, m)
	}
	for seq, s := range q.leases {
		line("leases", s, seq)
	}
	for seq, r := range q.held {
		line("held", seq, r.text)
	}
	for seq, s := range q.dead {
		line("dead", s, seq)
	}
	for seq, l := range q.letters {
		line("letters", seq, l.reason+" "+l.payload)
	}
	for name, n := range maps.All(q.account) {
		line("account", name, n)
	}
	if q.seq > 0 {
		line("account", "seq", q.seq)
	}
	for lane, o := range q.outs {
		line(append([]any{"out", lane, o.token}, anys(o.seqs)...)...)
	}
	line("notify", q.notify)
	slices.Sort(lines)
	return lines
}
