package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// model implements the rules of DESIGN.md in Go, on plain slices. After every random
// step the replies, and everything the scripts keep in Redis, must be the same.
type model struct {
	now       int64 // µs
	capacity  int64
	full      int64
	maxActive int
	active    int // partitions, as a produce call counts them
	parts     map[string]*modelPart
	ledger    map[string]int64
	pauses    map[string]string // the field of the ledger by partition; * = all of them
	maxKeys   int64
	keys      map[int64]int64  // idempotency keys by when they end to count, s
	results   map[string][]any // by partition and key
}

type modelPart struct {
	entries           []string
	known             bool // the hash exists
	head, tail, birth int64
	settled, expired  int64
	from, to          int64 // 0 = absent
	cuts              []int64
	cutsField         string // the cuts as the first lease of the range wrote them, several only
	attempt           int64  // absentAttempt: presented once
	done              string // what the sink accepted of [from, to), 0 and 1; empty = absent
	big               bool   // its entries may be large
	lacks             string // head or tail: the hash lost that field
	token             string
	active            bool // in the active set
	due               int64
}

const (
	modelLinger = 50   // ms
	modelMaxAge = 1000 // ms
	modelLease  = 200  // ms
	modelDead   = 1
	// absentAttempt: the hash has no field attempt.
	absentAttempt = -1
)

func (m *model) ms() int64 { return m.now / 1000 }

func (p *modelPart) dropRange() {
	p.from, p.to, p.cuts, p.cutsField, p.attempt, p.done, p.token = 0, 0, nil, "", absentAttempt, "", ""
}

func (m *model) end(p *modelPart) {
	m.ledger["high_water"] = max(m.ledger["high_water"], p.tail)
	*p = modelPart{}
}

func (m *model) create(p *modelPart, length int64) {
	*p = modelPart{
		entries: p.entries, active: p.active, due: p.due, known: true,
		head: max(m.now, m.ledger["high_water"]),
	}
	p.tail, p.birth = p.head+length, p.head
}

// accepted is how many entries of [lo, hi) the sink has accepted before.
func (p *modelPart) accepted(lo, hi int64) (n int64) {
	for seq := max(lo, p.to-int64(len(p.done))); seq < min(hi, p.to); seq++ {
		if p.done[int64(len(p.done))-(p.to-seq)] == '1' {
			n++
		}
	}
	return n
}

// keepDone drops the part of done before from.
func (p *modelPart) keepDone(from int64) {
	p.done = p.done[len(p.done)-int(max(0, min(p.to-from, int64(len(p.done))))):]
	if !strings.Contains(p.done, "1") {
		p.done = ""
	}
}

// reconcile restores I1: entries that vanished are lost, entries that something else
// pushed are accepted. Entries of the range that the sink accepted are delivered; but
// while a lease goes on and nothing vanished, its holder counts them.
func (m *model) reconcile(p *modelPart, leased bool) {
	if p.lacks != "" {
		*p = modelPart{entries: p.entries, active: p.active, due: p.due}
	}
	n := int64(len(p.entries))
	if missing := p.tail - p.head - n; p.known && (missing > 0 || !leased) {
		evicted, lost := p.accepted(0, p.head), p.accepted(p.head, p.head+max(missing, 0))
		m.ledger["delivered"] += evicted + lost
		m.ledger["reclaimed"] += evicted
		m.ledger["lost"] -= lost
		p.settled += evicted
		p.keepDone(p.head + max(missing, 0))
	}
	switch {
	case !p.known && n == 0:
		*p = modelPart{}
	case !p.known:
		if !p.active {
			m.ledger["accepted"] += n
		}
		m.create(p, n)
		p.big = true
	case p.tail-p.head > n:
		missing := p.tail - p.head - n
		m.ledger["lost"] += missing
		p.settled += missing
		p.head += missing
		if p.from != 0 {
			p.from = max(p.from, p.head)
		}
		if n == 0 {
			m.end(p)
		}
	default:
		m.ledger["accepted"] += n - (p.tail - p.head)
		p.tail = p.head + n
		if n == 0 {
			m.end(p)
		}
	}
}

// scheduleRest sets when the rest is due: now when it is a full batch or a malformed
// entry, otherwise when its oldest entry has waited for the linger.
func (m *model) scheduleRest(p *modelPart) {
	p.active, p.due = true, m.ms()
	if len(p.entries) == 0 {
		m.end(p)
	} else if ms, ok := written(p.entries[0]); ok && int64(len(p.entries)) < m.full {
		p.due = max(m.ms(), min(m.ms(), ms)+modelLinger)
	}
}

// written is an entry's time in ms; false when it has none.
func written(e string) (ms int64, ok bool) {
	if len(e) < 14 || (e[13] != ' ' && e[13] != '#') || strings.Trim(e[:13], "0123456789") != "" {
		return 0, false
	}
	ms, _ = strconv.ParseInt(e[:13], 10, 64)
	return ms, true
}

func (m *model) stale(e string) bool {
	ms, ok := written(e)
	return !ok || ms < m.ms()-modelMaxAge
}

// dropStale returns how many expired; the others count as delivered.
func (m *model) dropStale(p *modelPart) (expired int64) {
	n := 0
	for n < len(p.entries) && m.stale(p.entries[n]) {
		n++
	}
	if n > 0 {
		done := p.accepted(p.head, p.head+int64(n))
		p.entries = p.entries[n:]
		p.head += int64(n)
		p.settled += done
		expired = int64(n) - done
		p.expired += expired
		m.ledger["delivered"] += done
		m.ledger["expired"] += expired
		p.token, p.from = "", 0
		p.keepDone(p.head)
	}
	return expired
}

// beginProduce counts the active partitions, once a call.
func (m *model) beginProduce() {
	m.active = 0
	for _, p := range m.parts {
		if p.active {
			m.active++
		}
	}
}

// keptKeys is how many idempotency keys count.
func (m *model) keptKeys() (n int64) {
	for at, keys := range m.keys {
		if at*1000 > m.ms() {
			n += keys
		} else {
			delete(m.keys, at)
		}
	}
	return n
}

// produceOnce is produce under an idempotency key that is kept for two minutes, and counts in steps of 16 s.
func (m *model) produceOnce(id string, produce func() []any) []any {
	if m.results[id] != nil {
		return m.results[id]
	} else if m.keptKeys() >= m.maxKeys {
		return []any{int64(4)}
	}
	answer := produce()
	if answer[0] == int64(1) || answer[0] == int64(3) {
		m.results[id] = append([]any{int64(2)}, answer[1:4]...)
		m.keys[(m.ms()+120_000+15_999)/16_000*16]++
	}
	return answer
}

func (m *model) produce(p *modelPart, entries []string) []any {
	k, before, held, headless := int64(len(entries)), int64(len(p.entries)), false, false
	if before == 0 {
		if m.active >= m.maxActive && !(p.known && p.active) {
			return []any{int64(0)}
		}
		if !(p.known && p.active) {
			m.active++
		}
		tail := int64(0)
		if p.known {
			tail = p.tail
			mark := m.ledger["high_water"]
			m.reconcile(p, false)
			m.ledger["high_water"] = mark
		}
		m.create(p, 0)
		p.head = max(p.head, tail)
		p.tail, p.birth = p.head, p.head
		p.active, p.due = true, m.ms()+modelLinger
	} else if !p.known || p.lacks == "tail" || p.lacks == "head" && before+k > m.capacity {
		if !p.active {
			m.ledger["accepted"] += before
			p.active, p.due = true, m.ms()
			m.active++
		}
		held, headless = p.to != 0, true
		m.create(p, before+k-max(0, before+k-m.capacity))
		p.tail -= k // added below
		p.head -= max(0, before+k-m.capacity)
		p.big = true
	}
	m.ledger["accepted"] += k
	p.tail += k
	p.entries = append(slices.Clone(p.entries), entries...)
	evicted, sample := max(0, before+k-m.capacity), ""
	if evicted > 0 {
		newest := p.entries[evicted-1]
		p.entries = p.entries[evicted:]
		p.head += evicted
		m.ledger["evicted"] += evicted
		if p.tail-p.head != int64(len(p.entries)) {
			m.reconcile(p, p.from != 0)
		} else if m.ms()%64 == 0 && !headless && p.head > p.to {
			sample = newest[:min(len(newest), 79)]
		}
	}
	depth := int64(len(p.entries))
	if before < m.full && depth >= m.full && p.to == 0 && !held {
		p.active, p.due = true, m.ms()
	}
	if sample != "" {
		return []any{int64(3), k, evicted, depth, sample}
	}
	return []any{int64(1), k, evicted, depth}
}

// claim leases at most fits entries that nobody held before.
func (m *model) claim(name, token string, batch, batches, fits int64) []any {
	p := m.parts[name]
	if m.pauses["*"] != "" {
		return []any{int64(6)}
	} else if !p.active {
		return []any{int64(0), int64(0)}
	} else if p.due > m.ms() {
		return []any{int64(0), p.due}
	}
	m.reconcile(p, false)
	if !p.known {
		return []any{int64(1), int64(0)}
	}
	expired := m.dropStale(p)
	if len(p.entries) == 0 {
		m.end(p)
		return []any{int64(1), expired}
	}
	if m.pauses[name] != "" {
		oldest, _ := written(p.entries[0])
		p.token, p.from = "", 0
		p.due = min(m.ms()+modelMaxAge, max(m.ms()+500, oldest+modelMaxAge+1))
		return []any{int64(5), expired}
	}
	reply := []any{int64(2), expired, p.head, int64(1), ""}
	var cuts []int64
	give := func(to int64) {
		from := p.head
		if len(cuts) > 0 {
			from = cuts[len(cuts)-1]
		}
		var chunk []any
		for _, e := range p.entries[from-p.head : to-p.head] {
			chunk = append(chunk, e)
		}
		reply, cuts = append(reply, any(chunk)), append(cuts, to)
	}
	if p.to > p.head {
		p.attempt = p.presentations() + 1
		reply[3], reply[4] = p.attempt, p.done
		for _, cut := range p.cuts {
			if cut > p.head {
				give(cut)
			}
		}
	} else {
		p.dropRange()
		for to := p.head; int64(len(cuts)) < batches && to < min(p.tail, p.head+fits); {
			n := min(batch, p.tail-to)
			if len(cuts) > 0 && n < m.full {
				break
			}
			to += min(n, p.head+fits-to)
			give(to)
		}
		if len(cuts) > 1 {
			p.cutsField = strings.Trim(fmt.Sprint(cuts), "[]")
		}
	}
	to := cuts[len(cuts)-1]
	p.from, p.to, p.cuts, p.token = p.head, to, cuts, token
	p.due = m.ms() + modelLease
	return reply
}

func (m *model) commit(p *modelPart, token string, lo, hi, delivered, expired, dead int64) []any {
	if p.token == "" || p.token != token {
		return []any{int64(0)}
	}
	m.reconcile(p, true)
	switch {
	case !p.known || p.from == 0:
		return []any{int64(0)}
	case hi <= p.from:
		return []any{int64(2)}
	case lo != p.from || hi > p.to:
		return []any{int64(3), p.from}
	}
	m.ledger["delivered"] += delivered
	m.ledger["expired"] += expired
	m.ledger["dead"] += dead
	m.ledger["reclaimed"] += max(0, min(p.head-lo, hi-lo))
	p.expired += expired
	p.settled += delivered + dead
	if hi > p.head {
		p.entries = p.entries[hi-p.head:]
		p.head = hi
	}
	m.ledger["dead_kept"] += dead
	if over := m.ledger["dead_kept"] - modelDead; over > 0 {
		m.ledger["dead_kept"] -= over
		m.ledger["dead_evicted"] += over
	}
	if hi == p.to {
		p.dropRange()
		m.scheduleRest(p)
	} else {
		p.from = hi
		p.keepDone(hi)
	}
	return []any{int64(1)}
}

// presentations of a held range: absent is one.
func (p *modelPart) presentations() int64 {
	if p.attempt == absentAttempt {
		return 1
	}
	return p.attempt
}

func (m *model) release(p *modelPart, token string, delay, attempt int64, done string) []any {
	if p.token == "" || p.token != token {
		return []any{int64(0)}
	}
	if attempt == -1 {
		attempt = max(0, p.presentations()-1)
	}
	if done != "" {
		p.done = done
		p.keepDone(p.from)
	}
	p.token, p.from, p.attempt = "", 0, attempt
	p.active, p.due = true, m.ms()+delay
	return []any{int64(1)}
}

func (m *model) repair(name string, ahead int64) []any {
	p := m.parts[name]
	n := int64(len(p.entries))
	if n == 0 && !p.active && !p.known {
		return []any{int64(0), int64(0)}
	}
	repaired := int64(0)
	if n == 0 || !p.known || p.lacks != "" || p.tail-p.head != n {
		repaired = 1
	}
	leased := p.token != "" && (!p.active || p.due > m.ms())
	if p.done != "" && p.token != "" && !leased {
		p.token, p.from = "", 0 // it lapsed
	}
	m.reconcile(p, leased)
	if !p.known {
		return []any{repaired, int64(0)}
	}
	most := ahead
	if p.token != "" {
		most = max(ahead, modelLease)
	} else if p.to != 0 || m.pauses[name] != "" {
		most = max(ahead, modelMaxAge)
	}
	if !p.active || p.due > m.ms()+most {
		repaired, p.active, p.due = 1, true, m.ms()
		if p.token != "" {
			p.due += modelLease
		}
	}
	if p.token != "" && p.due > m.ms() {
		return []any{repaired, int64(0)}
	}
	expired := m.dropStale(p)
	if len(p.entries) == 0 {
		m.end(p)
	}
	return []any{repaired, expired}
}

func (m *model) pause(name, text string, since int64, maxPaused int) []any {
	partitions := 0
	for paused := range m.pauses {
		if paused != "*" {
			partitions++
		}
	}
	old, paused := m.pauses[name]
	switch {
	case paused:
		began, _, _ := strings.Cut(old, " ")
		m.pauses[name] = began + " " + text
		return []any{int64(1)}
	case name != "*" && partitions >= maxPaused:
		return []any{int64(0)}
	case since == 0:
		since = m.ms()
	}
	m.pauses[name] = fmt.Sprintf("%d %s", since, text)
	return []any{int64(1)}
}

func (m *model) resume(name string) []any {
	if m.pauses[name] == "" {
		return []any{int64(0)}
	}
	delete(m.pauses, name)
	if p := m.parts[name]; p != nil && p.active && p.token == "" {
		p.due = min(p.due, m.ms())
	}
	return []any{int64(1)}
}

// purge drops entries that occurred before cutoff, and as many as limit says; it lowers
// limit. Where it only counts them, it skips those that were counted before.
func (m *model) purge(p *modelPart, cutoff int64, limit *int, drop bool, counted int) []any {
	switch {
	case len(p.entries) == 0 || !p.active:
		return []any{int64(0), int64(0)}
	case p.token != "" && p.due > m.ms():
		return []any{int64(2)}
	}
	n, code := min(counted, len(p.entries)), int64(0)
	for before := n; ; n, *limit = n+1, *limit-1 {
		if n == len(p.entries) {
			n -= before
			break
		}
		ms, ok := written(p.entries[n])
		if *limit == 0 {
			code = 1
		}
		if code == 1 || cutoff < 1e13 && ok && ms >= cutoff {
			n -= before
			break
		}
	}
	if n == 0 || !drop {
		return []any{code, int64(n)}
	}
	m.reconcile(p, false)
	p.entries = p.entries[n:]
	p.head += int64(n)
	m.ledger["evicted"] += int64(n)
	m.ledger["purged"] += int64(n)
	m.reconcile(p, false)
	p.token, p.from = "", 0
	return []any{code, int64(n)}
}
