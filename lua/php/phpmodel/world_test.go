// Package phpmodel is the rules of lua/php once more, in Go, and a world around them: PHP's
// workers command by command, processes of ours, producers, time and faults on one queue.
// All of it is tests: nothing else needs it.
//
// A Queue is the model, on plain maps and slices. A World takes random steps on one and
// wants the invariants of DESIGN.md kept after each. The same walk runs on the model alone,
// and beside the scripts, where every reply and every key must be equal.
package phpmodel

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// store is a Queue, or a Queue beside the scripts on a server.
type store interface {
	setNow(us int64)
	publish(delay int64, key string, payloads []string) (state, count int)
	claim(lane, token string, ttr int64, count int, steal bool) claimed
	settle(jobs ...settling) []int
	revert(lane, token string) int
	respawn(remove bool, skip, count int) (done, kept, left int)
	purge(all bool, count int) (looked, removed int)
	look() []int
	peek() string
	get(seq int64) string
	deadPage(skip, count int) (total int, letters []string)
	phpMigrate(set string, clock int64)
	phpPop() (string, bool)
	phpAdd(set, member string, at int64) bool
	phpRemove(member string) bool
	phpPush(p string)
}

var errBroken = errors.New("broken")

func broken(format string, args ...any) {
	panic(fmt.Errorf("%w: "+format, append([]any{errBroken}, args...)...))
}

// A World has producers, PHP workers, and processes of ours with a lane each, on one queue.
// It knows each payload by the number in its data.
type World struct {
	*rand.Rand
	q      *Queue // what the invariants look at
	s      store
	tries  int64
	steal  bool
	count  map[string]int // what happened
	bug    string         // in the rules around the scripts
	latest int64          // the latest time that the store's clock has shown, ms

	payloads int
	pushed   map[int]int
	ended    map[int]int
	lost     map[int]int // by PHP
	doubled  map[int]int // by PHP
	counted  map[int]int64
	twin     map[int]bool // equal payloads: which is which cannot be told
	due      map[int]int64
	data     map[int]string
	inPHP    map[int]int // in a PHP process alone
	workers  []*phpWorker
	lanes    []*lane
	tokens   int
	twins    int      // one payload of so many is a twin
	live     []string // to make twins of
}

type lane struct {
	name    string
	unknown string // token of a claim with an unknown outcome
	hold    []*delivery
}

type delivery struct {
	handed
	n     int
	until int64
	ended bool
	taken bool // PHP has reserved a payload that is equal in every byte
}

var (
	dataIn  = regexp.MustCompile(`"data":(\{[^}]*\})`)
	triesIn = regexp.MustCompile(`"maxTries":(\d+)`)
	untilIn = regexp.MustCompile(`"retryUntil":(\d+)`)
)

func numberOf(p string) int {
	_, rest, ok := strings.Cut(p, `"n":`)
	n := 0
	for i := 0; i < len(rest) && rest[i] >= '0' && rest[i] <= '9'; i++ {
		n = 10*n + int(rest[i]-'0')
	}
	if !ok || n == 0 {
		broken("I6: no number in %q", p)
	}
	return n
}

// newWorld makes the world of a seed around q; s is q, or q beside the scripts.
func newWorld(seed int64, s store, q *Queue, bug string) *World {
	w := &World{Rand: rand.New(rand.NewSource(seed)), q: q, s: s, count: map[string]int{}, bug: bug, pushed: map[int]int{}, ended: map[int]int{},
		lost: map[int]int{}, doubled: map[int]int{}, counted: map[int]int64{}, twin: map[int]bool{}, due: map[int]int64{}, data: map[int]string{},
		inPHP: map[int]int{}, latest: q.now()}
	w.twins = 12
	if seed%7 == 5 {
		w.twins = 2
	}
	w.tries = []int64{0, 2, 3}[w.Intn(3)]
	w.steal = w.Intn(4) > 0
	for range w.Intn(3) {
		worker := &phpWorker{}
		if seed%5 == 4 {
			worker.skew = int64(w.Intn(7) - 3)
		}
		w.workers = append(w.workers, worker)
	}
	for i := range 1 + w.Intn(2) {
		w.lanes = append(w.lanes, &lane{name: fmt.Sprint("l", i)})
	}
	return w
}

// payload makes one of the forms that programs push.
func (w *World) payload() string {
	w.payloads++
	n, first := w.payloads, w.q.flavor.first
	extra := `"maxTries":` + []string{"null", "null", "null", "2"}[w.Intn(4)]
	if w.Intn(5) == 0 {
		extra += fmt.Sprint(`,"retryUntil":`, w.q.now()/1000+int64(w.Intn(40)))
	}
	var form string
	switch k := w.Intn(41); {
	case k < 14:
		form = `{"job":"J",%[3]s,"timeout":null,"data":{"n":%[1]d,"big":12345678901234567},"id":"x%[1]d","attempts":%[2]d}`
	case k < 20:
		form = `{"job":"J",%[3]s,"data":{"n":%[1]d,"e":[]},"id":"x%[1]d","attempts":%[2]d,"delay":null}`
	case k < 26:
		form = `{"job":"J",%[3]s,"data":{"n":%[1]d},"id":"x%[1]d","attempts":%[2]d,"tags":["attempts"],"pushedAt":"1"}`
	case k < 28:
		form = `{"attempts": %[2]d, "job":"J",%[3]s,"data":{"n":%[1]d,"attempts":5},"id":"x%[1]d"}`
	case k < 30:
		form = `{"attempts":7,"job":"J",%[3]s,"data":{"n":%[1]d,"s":"\"attempts\":3"},"attempts":%[2]d,"id":"x%[1]d"}`
	case k < 32:
		form = `{"job":"J",%[3]s,"data":{"n":%[1]d,"s":"\"attempts\":3"},"id":"x%[1]d"}`
	case k < 34:
		form = `{"\u0061ttempts":%[2]d,%[3]s,"data":{"n":%[1]d},"id":"x%[1]d"}`
	case k < 35:
		form = `{"attempts":"%[2]d",%[3]s,"data":{"n":%[1]d},"id":"x%[1]d"}`
	case k < 36:
		form = `{"attempts":9007199254740992,%[3]s,"data":{"n":%[1]d},"id":"x%[1]d"}`
	case k < 37:
		form = "{\"data\":{\"n\":%[1]d,\"s\":\"\xff\"},%[3]s,\"attempts\":%[2]d} \n"
	case k < 38:
		form = `{broken "n":%[1]d,%[3]s,"attempts":%[2]d}`
	case k < 39:
		form = `{broken "n":%[1]d,"attempts":%[2]d,%[3]s}`
	default:
		form = `"n":%[1]d %[2]d %[3]s` // no JSON
	}
	p := fmt.Sprintf(form, n, first, extra)
	w.data[n] = dataIn.FindString(p)
	return p
}

func (w *World) newPayload() string {
	if len(w.live) > 0 && w.Intn(w.twins) == 0 {
		p := w.live[w.Intn(len(w.live))] // equal in every byte
		w.twin[numberOf(p)] = true
		return p
	}
	p := w.payload()
	w.live = append(w.live, p)
	return p
}

// readable tells whether PHP can read a payload.
func readable(p string) bool {
	f, ok := attemptsOf(p)
	return ok && f.value >= 0 && utf8.ValidString(p) && !strings.HasPrefix(p, "{broken")
}

// mostTries is how often a payload may be delivered; 0: endless, or until a time.
func (w *World) mostTries(p string) int64 {
	if untilIn.MatchString(p) {
		return 0
	}
	if m := triesIn.FindStringSubmatch(p); m != nil && !strings.HasPrefix(p, "{broken") {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return n
	}
	return w.tries
}

// walk runs steps, then lets all end.
func (w *World) walk(steps int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(error)
			if !ok || !errors.Is(e, errBroken) {
				panic(r)
			}
			err = e
		}
	}()
	for range steps {
		w.step()
		w.check()
	}
	w.drain()
	return nil
}

func (w *World) step() {
	l := w.lanes[w.Intn(len(w.lanes))]
	switch k := w.Intn(200); {
	case k < 28:
		w.push()
	case k < 40:
		w.publish()
	case k < 110 && len(w.workers) > 0:
		w.php(w.workers[w.Intn(len(w.workers))])
	case k < 144:
		w.claim(l)
	case k < 178:
		w.settle(l)
	case k < 182:
		w.respawn(w.Intn(2) == 0, w.Intn(2))
	case k < 184:
		for _, d := range l.hold { // the process dies, and another takes its place
			d.ended = true
		}
		w.tokens++
		*l = lane{name: fmt.Sprint("m", w.tokens)}
		w.count["process died"]++
	case k < 186:
		w.purge(w.Intn(3) == 0, 1+w.Intn(4))
	case k < 190:
		w.read()
	case k < 191:
		w.s.setNow(w.q.us - int64(w.Intn(3_000_000)))
		w.count["clock back"]++
	default:
		d := []int64{1, 20, 300, 1000, 2500, 7000, 20000}[w.Intn(7)]
		w.s.setNow(w.q.us + d*1000 + int64(w.Intn(1000)))
	}
	w.latest = max(w.latest, w.q.now())
}

// push is a PHP program.
func (w *World) push() {
	p := w.newPayload()
	n := numberOf(p)
	w.pushed[n]++
	if w.Intn(3) > 0 {
		w.s.phpPush(p)
		return
	}
	at := w.q.now()/1000 + int64(w.Intn(6))
	w.due[n] = at * 1000
	if !w.s.phpAdd("delayed", p, at) {
		w.lost[n]++ // it only moved the one that was there
		w.count["PHP collapsed twins"]++
	}
}

// publish is a client of ours; it repeats where the answer was lost.
func (w *World) publish() {
	var all []string
	for range 1 + w.Intn(3) {
		if p := w.newPayload(); p[0] == '{' { // others are rejected before the script
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return
	}
	delay := int64(0)
	if w.Intn(3) == 0 {
		delay = int64(1 + w.Intn(5000))
	}
	w.tokens++
	key := fmt.Sprint("k", w.tokens)
	for _, p := range all {
		if delay > 0 {
			w.due[numberOf(p)] = w.q.now() + delay
		}
		w.pushed[numberOf(p)]++
	}
	w.s.publish(delay, key, all)
	if w.Intn(4) == 0 {
		w.s.publish(delay, key, all)
		w.count["published again"]++
	}
}

// read looks at the queue in all ways, which changes nothing.
func (w *World) read() {
	w.s.look()
	w.s.peek()
	if total, page := w.s.deadPage(w.Intn(3), 1+w.Intn(3)); total != len(w.q.dead) || len(page) > total {
		broken("dead_page: %d of %d", len(page), total)
	}
	for _, l := range w.lanes {
		for _, d := range l.hold {
			w.s.get(d.seq)
		}
	}
	for seq := range w.q.dead {
		if w.s.get(seq) == "" {
			broken("get: the dead letter %d is nowhere", seq)
		}
	}
	w.count["read"]++
}

// goes runs what may remove payloads from the dead, or from everywhere: of those that went, gone is told the number.
func (w *World) goes(run func(), gone func(n int)) {
	before := w.places()
	run()
	after := w.places()
	for n, had := range before {
		for range had - after[n] {
			gone(n)
		}
	}
}

func (w *World) respawn(remove bool, skip int) {
	letters := maps.Clone(w.q.letters)
	w.goes(func() { w.s.respawn(remove, skip, 2) }, func(n int) { w.ended[n]++ })
	for seq, l := range letters {
		if _, there := w.q.letters[seq]; !there && !remove {
			w.counted[numberOf(l.payload)] = 0
			w.count["respawned"]++
		}
	}
}

func (w *World) purge(all bool, count int) {
	w.goes(func() { w.s.purge(all, count) }, func(n int) { w.ended[n]++ })
	for _, l := range w.lanes {
		for _, d := range l.hold {
			if _, there := w.q.leases[d.seq]; !there {
				d.ended = true
			}
		}
	}
	w.count["purged"]++
}
