package lua_test

import (
	"slices"
	"strconv"
	"strings"
)

// The rules of DESIGN.md once more, in Go, on plain slices. After every random
// step the replies, and everything the scripts keep in Redis, must be the same.
type model struct {
	now      int64 // µs
	capacity int64
	full     int64
	most     int
	parts    map[string]*modelPart
	ledger   map[string]int64
}

type modelPart struct {
	entries           []string
	known             bool // the hash exists
	head, tail, birth int64
	settled, expired  int64
	from, to          int64 // 0 = absent
	cuts              []int64
	attempt           int64
	token             string
	active            bool // in the active set
	due               int64
}

const (
	modelLinger = 50   // ms
	modelMaxAge = 1000 // ms
	modelLease  = 200  // ms
	modelDead   = 1
)

func (m *model) ms() int64 { return m.now / 1000 }

func (p *modelPart) dropRange() { p.from, p.to, p.cuts, p.attempt, p.token = 0, 0, nil, 0, "" }

func (m *model) die(p *modelPart) {
	m.ledger["high_water"] = max(m.ledger["high_water"], p.tail)
	*p = modelPart{}
}

func (m *model) born(p *modelPart, length int64) {
	*p = modelPart{
		entries: p.entries, active: p.active, due: p.due, known: true,
		head: max(m.now, m.ledger["high_water"]),
	}
	p.tail, p.birth = p.head+length, p.head
}

// heal is I1: what other hands took is lost, what they brought is accepted.
func (m *model) heal(p *modelPart) {
	n := int64(len(p.entries))
	switch {
	case !p.known && n == 0:
		*p = modelPart{}
	case !p.known:
		if !p.active {
			m.ledger["accepted"] += n
		}
		m.born(p, n)
	case p.tail-p.head > n:
		missing := p.tail - p.head - n
		m.ledger["lost"] += missing
		p.settled += missing
		p.head += missing
		if p.from != 0 {
			p.from = max(p.from, p.head)
		}
		if n == 0 {
			m.die(p)
		}
	default:
		m.ledger["accepted"] += n - (p.tail - p.head)
		p.tail = p.head + n
		if n == 0 {
			m.die(p)
		}
	}
}

func (m *model) rearm(p *modelPart, since int64) {
	switch {
	case len(p.entries) == 0:
		m.die(p)
	case int64(len(p.entries)) >= m.full:
		p.active, p.due = true, m.ms()
	default:
		p.active, p.due = true, max(m.ms(), since+modelLinger)
	}
}

func (m *model) stale(e string) bool {
	if len(e) < 14 || (e[13] != ' ' && e[13] != '#') || strings.Trim(e[:13], "0123456789") != "" {
		return true
	}
	ms, _ := strconv.ParseInt(e[:13], 10, 64)
	return ms < m.ms()-modelMaxAge
}

func (m *model) dropStale(p *modelPart) int64 {
	n := 0
	for n < len(p.entries) && m.stale(p.entries[n]) {
		n++
	}
	if n > 0 {
		p.entries = p.entries[n:]
		p.head += int64(n)
		p.expired += int64(n)
		m.ledger["expired"] += int64(n)
		p.token, p.from = "", 0
	}
	return int64(n)
}

func (m *model) produce(p *modelPart, entries []string) []any {
	k, before := int64(len(entries)), int64(len(p.entries))
	active := 0
	for _, other := range m.parts {
		if other.active {
			active++
		}
	}
	if before == 0 {
		if p.known {
			m.ledger["lost"] += p.tail - p.head
			m.die(p)
			active--
		}
		if active >= m.most {
			return []any{int64(0), m.ms()}
		}
		m.born(p, 0)
		p.active, p.due = true, m.ms()+modelLinger
	} else if !p.known {
		if !p.active {
			m.ledger["accepted"] += before
			p.active, p.due = true, m.ms()
		}
		m.born(p, before)
	}
	m.ledger["accepted"] += k
	p.tail += k
	p.entries = append(slices.Clone(p.entries), entries...)
	evicted := max(0, before+k-m.capacity)
	if evicted > 0 {
		p.entries = p.entries[evicted:]
		p.head += evicted
		m.ledger["evicted"] += evicted
		m.heal(p)
	}
	depth := int64(len(p.entries))
	if before < m.full && depth >= m.full && p.to == 0 {
		p.active, p.due = true, m.ms()
	}
	return []any{int64(1), m.ms(), k, evicted, depth}
}

func (m *model) claim(p *modelPart, token string, batch, batches int64) []any {
	if !p.active {
		return []any{int64(0), m.ms(), int64(0)}
	} else if p.due > m.ms() {
		return []any{int64(0), m.ms(), p.due}
	}
	m.heal(p)
	if !p.known {
		return []any{int64(1), m.ms(), int64(0)}
	}
	expired := m.dropStale(p)
	if len(p.entries) == 0 {
		m.die(p)
		return []any{int64(1), m.ms(), expired}
	}
	reply := []any{int64(2), m.ms(), expired, p.head, int64(1)}
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
		p.attempt++
		reply[4] = p.attempt
		for _, cut := range p.cuts {
			if cut > p.head {
				give(cut)
			}
		}
	} else {
		p.attempt = 1
		for to := p.head; int64(len(cuts)) < batches && to < p.tail; {
			n := min(batch, p.tail-to)
			if len(cuts) > 0 && n < m.full {
				break
			}
			to += n
			give(to)
		}
	}
	to := cuts[len(cuts)-1]
	if token == "" {
		m.ledger["delivered"] += to - p.head
		p.settled += to - p.head
		p.entries = p.entries[to-p.head:]
		p.head = to
		p.dropRange()
		m.rearm(p, m.ms())
		return reply
	}
	p.from, p.to, p.cuts, p.token = p.head, to, cuts, token
	p.due = m.ms() + modelLease
	return reply
}

func (m *model) commit(p *modelPart, token string, lo, hi, delivered, expired, dead int64) []any {
	if p.token == "" || p.token != token {
		return []any{int64(0), m.ms()}
	}
	since := m.ms()
	if p.active {
		since = min(since, p.due-modelLease)
	}
	m.heal(p)
	switch {
	case !p.known || p.from == 0:
		return []any{int64(0), m.ms()}
	case hi <= p.from:
		return []any{int64(2), m.ms()}
	case lo != p.from || hi > p.to:
		return []any{int64(3), m.ms(), p.from}
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
		m.rearm(p, since)
	} else {
		p.from = hi
	}
	return []any{int64(1), m.ms()}
}

func (m *model) release(p *modelPart, token string, delay, attempt int64) []any {
	if p.token == "" || p.token != token {
		return []any{int64(0), m.ms()}
	}
	if attempt == -1 {
		attempt = max(0, p.attempt-1)
	}
	p.token, p.from, p.attempt = "", 0, attempt
	p.active, p.due = true, m.ms()+delay
	return []any{int64(1), m.ms()}
}

func (m *model) repair(p *modelPart, ahead int64) []any {
	n := int64(len(p.entries))
	if n == 0 && !p.active && !p.known {
		return []any{int64(0), m.ms(), int64(0)}
	}
	mended := int64(0)
	if n == 0 || !p.known || p.tail-p.head != n {
		mended = 1
	}
	m.heal(p)
	if !p.known {
		return []any{mended, m.ms(), int64(0)}
	}
	most := ahead
	if p.token != "" {
		most = max(ahead, modelLease)
	} else if p.to != 0 {
		most = max(ahead, modelMaxAge)
	}
	if !p.active || p.due > m.ms()+most {
		mended, p.active, p.due = 1, true, m.ms()
		if p.token != "" {
			p.due += modelLease
		}
	}
	if p.token != "" && p.due > m.ms() {
		return []any{mended, m.ms(), int64(0)}
	}
	expired := m.dropStale(p)
	if len(p.entries) == 0 {
		m.die(p)
	}
	return []any{mended, m.ms(), expired}
}
