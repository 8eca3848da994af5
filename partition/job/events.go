package job

import (
	"bytes"
	"context"
	"encoding/json"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// Events of jobs are told to the clients that listen, by whichever process did something, after it was
// done: see note. They are best effort, as traces are. A process builds none while nobody listens, which
// it learns with what it reads of the others each second (space.Home.Heard), and sends those of a tenth
// of a second together.
const (
	// eventsQueue is a name that no caller can use: of the channel of a namespace's events, beside those
	// of the wakes of its first shard.
	eventsQueue = "!events"
	// unknownID stands for the caller's id where only the sequence of a job is known.
	unknownID = "\x00"
	// begins is how many characters of an id are its sequence.
	begins     = 13
	maxUnsent  = 512 << 10 // bytes of events that a process holds, of a namespace
	maxMessage = 16 << 10  // of a message, where it has more than one event
	// Why events are dropped.
	eventsFull  = "full"
	eventsStore = "store"
	eventsSlow  = "slow"
)

// said is what a client said of a job.
type said struct {
	result   string
	progress *Progress
}

// An event is what listeners read.
type event struct {
	Queue    string `json:"queue,omitempty"`
	ID       string `json:"id,omitempty"`
	IDBegins string `json:"id_begins,omitempty"` // where the rest is not known
	Count    int64  `json:"count,omitempty"`     // of jobs without their ids
	TraceEvent
	Progress *int            `json:"progress,omitempty"`
	Note     string          `json:"note,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// emit tells who listens what happened to a job, or to count jobs: as a line of the queue, the word and
// a JSON object.
func (s *Store) emit(ns *Namespace, queue string, ref Ref, count int64, e TraceEvent) {
	if queue == outbox || e.Event == "" {
		return
	}
	e.Error = keptText(e.Error, MaxError)
	v := event{Queue: queue, Count: count, TraceEvent: e, Result: asJSON([]byte(e.result))}
	switch {
	case count > 0:
	case ref.CallerID == unknownID:
		v.IDBegins = ns.ID(ref.Shard, queue, ref.Seq, "")[:begins]
	default:
		v.ID = ns.ID(ref.Shard, queue, ref.Seq, ref.CallerID)
	}
	if e.progress != nil {
		v.Progress, v.Note = &e.progress.Percent, keptText(e.progress.Note, MaxNote)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return // asJSON has made what could fail valid
	}
	line := queue + " " + e.Event + " " + string(data) + "\n"
	s.events.at(ns, func(u *unsent) {
		if len(u.text)+len(line) > maxUnsent {
			u.dropped++
			s.metrics.droppedEvents.WithLabelValues(eventsFull).Inc()
			return
		}
		u.text = append(u.text, line...)
	})
	select {
	case s.traced.wake <- struct{}{}:
	default:
	}
}

// emitCount tells of jobs without their ids, and without their queue where it may be any of several.
func (s *Store) emitCount(ns *Namespace, queues []string, count int64, word string, now int64) {
	if count <= 0 || !ns.Heard() {
		return
	}
	queue := ""
	if len(queues) == 1 {
		queue = queues[0]
	}
	s.emit(ns, queue, Ref{}, count, TraceEvent{AtMS: now, Event: word})
}

// events are those that this process has not sent yet, by namespace.
type events struct {
	mu sync.Mutex
	of map[string]*unsent
}

type unsent struct {
	ns      *Namespace
	text    []byte
	dropped int // events, since the last message
}

// at calls f with what is not sent yet of a namespace.
func (e *events) at(ns *Namespace, f func(*unsent)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[string]*unsent{}
	}
	u := e.of[ns.Name]
	if u == nil {
		u = &unsent{}
		e.of[ns.Name] = u
	}
	u.ns = ns
	f(u)
}

// send sends what there is. What the store does not take is dropped, and listeners are told with the
// next message.
func (e *events) send(s *Store) {
	e.mu.Lock()
	all := e.of
	e.of = nil
	e.mu.Unlock()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), backend.ProbeTimeout)
	defer cancel()
	pipes := backend.Pipes{}
	type message struct {
		of             *unsent
		events, missed int // that it has, and that are missing if it is not sent
		sent           *redis.IntCmd
	}
	var messages []message
	for _, u := range all {
		sh := u.ns.newest()[0]
		pipe := pipes.To(s.backend.ClientFor(ctx, sh.Ledger))
		publish := pipe.Publish
		if s.backend.Cluster() {
			publish = pipe.SPublish
		}
		if u.dropped > 0 {
			messages = append(messages, message{u, 0, u.dropped, publish(ctx, sh.channel+eventsQueue, droppedLine(u.dropped))})
			u.dropped = 0
		}
		for rest := u.text; len(rest) > 0; {
			n := len(rest)
			if n > maxMessage {
				if n = bytes.LastIndexByte(rest[:maxMessage], '\n') + 1; n == 0 {
					n = bytes.IndexByte(rest, '\n') + 1
				}
			}
			events := bytes.Count(rest[:n], []byte{'\n'})
			messages = append(messages, message{u, events, events, publish(ctx, sh.channel+eventsQueue, rest[:n])})
			rest = rest[n:]
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for _, m := range messages {
		if m.sent.Err() != nil {
			m.of.dropped += m.missed
			s.metrics.droppedEvents.WithLabelValues(eventsStore).Add(float64(m.events))
		}
	}
	for _, u := range all {
		if u.dropped > 0 {
			e.at(u.ns, func(later *unsent) { later.dropped += u.dropped })
		}
	}
}

// droppedLine is the line that says that events are missing; 0: nobody knows how many.
func droppedLine(count int) string {
	if count == 0 {
		return ` dropped {"event":"dropped"}` + "\n"
	}
	return ` dropped {"event":"dropped","count":` + strconv.Itoa(count) + "}\n"
}

// feedBytes bounds the events of a namespace that a process holds for its listeners.
const feedBytes = 1 << 20

// Events hears the events of the namespaces that somebody listens to here. Its subscriptions are those of
// Wakes, with connections of their own: no wake waits behind events.
type Events struct {
	*Wakes
	mu sync.Mutex
	of map[string]*feed // by namespace
}

// A feed is the newest events of a namespace. All listeners read the same memory, each where it is: a slow
// one holds up nobody and costs no more than a quick one. What it has not read when it makes room is
// dropped for it.
type feed struct {
	ns         *Namespace
	shard      int // whose channel it hears
	unwant     func()
	free       func() // of its memory
	since      time.Time
	subscribed atomic.Bool
	listeners  map[*Listener]bool

	mu       sync.Mutex // of what follows: who reads waits for no other namespace
	messages []message
	bytes    int
	end      int // events of all messages so far
}

// message is lines of events.
type message struct {
	text  string
	begin int // events of all before
}

// NewEvents makes the events of a store.
func NewEvents(s *Store) *Events {
	e := &Events{of: map[string]*feed{}}
	e.Wakes = NewWakes(s, e.hear)
	e.outage.Began, e.outage.Ended = "events of queues are not heard: listeners miss some", "events of queues are heard again"
	return e
}

func (e *Events) hear(event WakeEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch event.Kind {
	case WakeLost, WakeMoved:
		for _, f := range e.of {
			moved := event.Kind == WakeMoved
			if moved && f.ns.newest()[0].Number == f.shard {
				continue // another namespace did
			}
			f.subscribed.Store(false) // WakeSubscribed follows
			f.add(droppedLine(0))
			if moved {
				before := f.unwant
				f.want(e)
				before()
			}
		}
		return
	}
	switch f := e.of[event.Namespace]; {
	case f == nil:
	case event.Kind == WakeSubscribed:
		if event.Shard == f.shard {
			f.subscribed.Store(true)
			f.nudge()
		}
	case event.Text != "":
		f.add(event.Text)
	case event.Kind == WakeHeard:
		e.store.metrics.droppedEvents.WithLabelValues(eventsSlow).Add(float64(event.Count * len(f.listeners)))
		f.add(droppedLine(event.Count))
	}
}

// want subscribes to the events of the feed, where its namespace is now.
func (f *feed) want(e *Events) {
	shard := f.ns.newest()[0].Number
	f.shard, f.unwant = shard, func() { e.Unwant(f.ns, shard, eventsQueue) }
	e.Want(f.ns, shard, eventsQueue)
}

// add adds a message, and lets go of the oldest.
func (f *feed) add(text string) {
	f.mu.Lock()
	f.messages = append(f.messages, message{text, f.end})
	f.end += strings.Count(text, "\n")
	for f.bytes += len(text); f.bytes > feedBytes && len(f.messages) > 1; {
		f.bytes -= len(f.messages[0].text)
		f.messages[0] = message{}
		f.messages = f.messages[1:]
	}
	f.mu.Unlock()
	f.nudge()
}

func (f *feed) nudge() {
	for l := range f.listeners {
		l.nudge()
	}
}

// Listener reads the events of a namespace from when it was made. One goroutine may use it.
type Listener struct {
	events *Events
	feed   *feed
	queues map[string]bool // nil: all
	at     int             // events that it has read, of all
	text   string          // of which it has not
	ready  bool            // it has said so
	timed  bool            // it is woken when it may say so
	woken  chan struct{}
}

// Listen makes a listener to some queues, or to all where there is none; nil: it is the first of its
// namespace, and could not hold the memory of what all read. That is freed after the last. The caller
// closes it.
func (e *Events) Listen(ns *Namespace, queues []string, hold func(bytes int) (free func())) *Listener {
	l := &Listener{events: e, woken: make(chan struct{}, 1)}
	for _, queue := range queues {
		if l.queues == nil {
			l.queues = map[string]bool{}
		}
		l.queues[queue] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.of[ns.Name]
	if f == nil || f.ns.Home != ns.Home { // that of a namespace that was deleted ends with its listeners
		free := hold(feedBytes)
		if free == nil {
			return nil
		}
		f = &feed{ns: ns, since: time.Now(), listeners: map[*Listener]bool{}, free: free}
		e.of[ns.Name] = f
		ns.Listening(true)
		f.want(e)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[l] = true
	l.feed, l.at = f, f.end
	return l
}

// Bytes is what it holds, about: the message that it reads, which the others may be done with.
func (l *Listener) Bytes() int { return maxMessage }

// Close ends it.
func (l *Listener) Close() {
	e, f := l.events, l.feed
	e.mu.Lock()
	defer e.mu.Unlock()
	f.mu.Lock()
	l.miss()
	f.mu.Unlock()
	if delete(f.listeners, l); len(f.listeners) > 0 {
		return
	}
	f.ns.Listening(false)
	f.unwant()
	f.free()
	if e.of[f.ns.Name] == f {
		delete(e.of, f.ns.Name)
	}
}

// Woken has a value once Next may have something.
func (l *Listener) Woken() <-chan struct{} { return l.woken }

func (l *Listener) nudge() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// miss goes on behind what was dropped, and counts it; the lock of the feed is held.
func (l *Listener) miss() (missed int) {
	if m := l.feed.messages; len(m) > 0 && m[0].begin > l.at {
		missed = m[0].begin - l.at
		l.at = m[0].begin
		l.events.store.metrics.droppedEvents.WithLabelValues(eventsSlow).Add(float64(missed))
	}
	return missed
}

// Next is the next event: its word and a JSON object; false: there is none now. ready says that from here
// on all processes tell what they do, and dropped that events are missing.
func (l *Listener) Next() (word, data string, ok bool) {
	for {
		for l.text != "" {
			line, rest, _ := strings.Cut(l.text, "\n")
			l.text = rest
			l.at++
			queue, line, _ := strings.Cut(line, " ")
			if word, data, _ = strings.Cut(line, " "); l.queues == nil || l.queues[queue] || word == "dropped" {
				return word, data, true
			}
		}
		f := l.feed
		f.mu.Lock()
		missed := l.miss()
		if n := len(f.messages); missed == 0 && l.at < f.end {
			next := sort.Search(n, func(i int) bool { return f.messages[i].begin > l.at })
			l.text = f.messages[next-1].text
		}
		wait := space.HeardAfter - time.Since(f.since)
		ready := !l.ready && f.subscribed.Load() && wait <= 0
		if !l.timed && wait > 0 {
			l.timed = true
			time.AfterFunc(wait, l.nudge)
		}
		f.mu.Unlock()
		switch {
		case missed > 0:
			_, data, _ = strings.Cut(strings.TrimSpace(droppedLine(missed)), " ")
			return "dropped", data, true
		case ready:
			l.ready = true
			return "ready", `{"event":"ready"}`, true
		case l.text == "":
			return "", "", false
		}
	}
}
