package phpmodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// record is a lease. text: as the script keeps it; digits: where those of attempts begin in member, from 1; 0: nobody has said so.
type record struct {
	payload, member, text string
	digits                int
}

type letter struct {
	reason  string
	digits  int
	payload string
}

// record of a payload whose member differs from byte at on, but for the last tail.
func newRecord(payload, member string, at, digits, tail int) record {
	had := payload[at-1 : len(payload)-tail]
	return record{payload, member, fmt.Sprint(at, " ", len(had), " ", digits, " ", tail, " ", had, member), digits}
}

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

// moveDue gives those whose attempts are to be counted and not found.
func (q *Queue) moveDue(set map[string]int64, till int64, count bool) (moved int, hard []string) {
	all := due(set, till)
	var ready []string
	for _, m := range all {
		delete(set, m)
		f, ok := tailOf(m)
		switch {
		case count && ok:
			m, _ = f.write(m, f.value+1)
		case count && isObject(m):
			hard = append(hard, m)
			continue
		}
		ready = append(ready, m)
	}
	q.push(ready, false)
	return len(all), hard
}

// returned is the payload of a lease whose delivery counts, as it goes back.
func (q *Queue) returned(r record, count bool) string {
	switch {
	case r.digits == 0:
		return r.payload
	case !q.flavor.onRelease || !count:
		return r.member
	}
	f := found{from: r.digits - 1, to: r.digits - 1}
	for '0' <= r.member[f.to] && r.member[f.to] <= '9' {
		f.value, f.to = 10*f.value+int64(r.member[f.to]-'0'), f.to+1
	}
	text, _ := f.write(r.member, f.value+1)
	return text
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
			back = append(back, q.returned(r, !q.is("a lapse does not count")))
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
	var c claimed
	c.moved, _ = q.moveDue(q.delayed, q.now()+early[q.is("delayed ones come early")], false)
	if !q.is("nothing lapses") {
		c.lapsed = q.lapse()
	}
	var hard []string
	if steal {
		var moved int
		moved, hard = q.moveDue(q.reserved, q.now()+30*early[q.is("a running reservation is taken")],
			q.flavor.onRelease && !q.is("what PHP let lapse is not counted"))
		c.moved += moved
	}
	seq, deadline := max(q.us, q.seq+1), q.deadline(ttr)
	if q.is("sequences start again") {
		seq = q.us
	}
	var seqs []int64
	for count += len(hard); len(c.jobs) < count && len(hard)+len(q.ready) > 0; q.seq, seq = seq, seq+1 {
		var p string
		value := int64(-2)
		if len(hard) > 0 {
			p, hard = hard[0], hard[1:]
		} else {
			p, value = q.pop(1)[0], -1
		}
		f, ok := tailOf(p)
		if !ok && !isObject(p) {
			c.unreadable++
			if !q.is("what is no JSON is dropped") {
				q.dead[seq], q.letters[seq] = q.now(), letter{"unreadable", 0, p}
			}
			continue
		}
		text, at, digits := p, 0, 0
		if ok {
			value, at, digits = f.value, f.from+1, f.from+1
			if !q.flavor.onRelease && !q.is("a claim does not count") {
				text, _ = f.write(p, f.value+1)
			}
		}
		member := q.place(q.reserved, deadline, text, seq)
		if !ok {
			if at = len(p) + 1; member != p {
				_, at = appendField(p, "")
				at++
			}
		}
		q.held[seq] = newRecord(p, member, at, digits, 0)
		q.leases[seq] = deadline
		if q.is("nothing is reserved") {
			delete(q.reserved, member)
		}
		c.jobs, seqs = append(c.jobs, handed{seq, value, deadline, p}), append(seqs, seq)
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

type settling struct {
	seq  int64
	verb string
	ms   int64 // digits: where they are; append: attempts so far
}

// count writes the attempts of a lease whose claim did not find them.
func (q *Queue) count(job settling) {
	r := q.held[job.seq]
	text, at, digits, tail := r.payload, int(job.ms), int(job.ms), 0
	switch {
	case r.digits > 0:
		return
	case job.verb == "append":
		n := job.ms
		if !q.flavor.onRelease {
			n++
		}
		field := fmt.Sprint(`"attempts":`, n)
		text, at = appendField(r.payload, field)
		at++
		digits = at + strings.Index(text[at-1:], field) + len(`"attempts":`)
	default:
		f, _ := attemptsOf(r.payload)
		if tail = len(r.payload) - f.to; !q.flavor.onRelease {
			text, _ = f.write(r.payload, f.value+1)
		}
	}
	delete(q.reserved, r.member)
	member := q.place(q.reserved, q.leases[job.seq], text, job.seq)
	if member != text {
		tail = 0
	}
	q.held[job.seq] = newRecord(r.payload, member, at, digits, tail)
}

func (q *Queue) settle(jobs ...settling) []int {
	var states []int
	var front, back []string
	for _, job := range jobs {
		state, payload := q.settleOne(job)
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

func (q *Queue) settleOne(job settling) (state int, back string) {
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
	if job.verb == "digits" || job.verb == "append" {
		q.count(job)
		return leased, ""
	}
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
	case "bury", "unfit", "exhaust", "unreadable":
		q.add(map[string]string{"bury": "buried", "exhaust": "buried", "unfit": "unfit", "unreadable": "unfit"}[job.verb], 1)
		reason := map[string]string{"bury": "buried", "exhaust": "nacked", "unfit": "unfit", "unreadable": "unreadable"}[job.verb]
		payload := r.member
		if r.digits == 0 {
			payload = r.payload
		}
		q.dead[job.seq], q.letters[job.seq] = q.now(), letter{reason, r.digits, payload}
		q.add("died", 1)
		return deadNow, ""
	}
	q.add("nacked", 1)
	back = q.returned(r, !q.is("a nack does not count"))
	if job.ms > 0 {
		q.place(q.delayed, q.now()+job.ms, back, job.seq)
		return delayedAgain, ""
	}
	return readyAgain, back
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
		if l.digits > 0 && !q.is("a respawn keeps its attempts") {
			end := l.digits - 1
			for '0' <= l.payload[end] && l.payload[end] <= '9' {
				end++
			}
			l.payload = fmt.Sprint(l.payload[:l.digits-1], q.flavor.first, l.payload[end:])
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
		line("letters", seq, fmt.Sprint(l.reason, " ", l.digits, " ", l.payload))
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
