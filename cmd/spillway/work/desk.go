package work

import (
	"context"
	"strconv"
	"sync"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// A desk is where claimed jobs meet idle children.
//
// While jobs take little time it asks for some more than there are idle children, so that a round
// trip to the service brings many. Those that wait for longer than staleAfter go back, uncounted:
// others may do them. A job at its last try is never asked for so, because when this process is
// killed, each job that it holds has lost a try.
type desk struct {
	tasks   chan *task       // a child receives only when it is idle
	changed lifecycle.Signal // more may be wanted

	mu       sync.Mutex
	idle     int // children
	seated   int // children that do jobs
	promised int // jobs that are asked for, or wait for a child
	took     time.Duration
	last     bool // jobs come at their last try
	paused   bool
}

const (
	staleAfter = 250 * time.Millisecond
	aheadFor   = 20 * time.Millisecond // of work
	maxAhead   = 128                   // jobs
)

// A task is a job that is to be done.
type task struct {
	spillway.Job
	ctx  context.Context // ends when the child is to be ended
	done chan error      // holds one: as a handler of the client returns it
}

// seq names the delivery to a child.
func (t *task) seq() string { return t.ID + ":" + strconv.Itoa(t.Attempt) }

func newDesk() *desk {
	return &desk{tasks: make(chan *task), changed: lifecycle.NewSignal(), took: aheadFor}
}

// note changes the desk.
func (d *desk) note(change func()) {
	d.mu.Lock()
	change()
	d.mu.Unlock()
	d.changed.Ring()
}

// want is how many jobs to ask for now. It counts them as promised.
func (d *desk) want() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ahead := 0
	if !d.last && d.took < aheadFor {
		ahead = min(int(aheadFor/max(d.took, time.Microsecond))*d.seated, maxAhead)
	}
	n := d.idle + ahead - d.promised
	// Not one by one: when half of them are gone.
	if d.paused || n <= 0 || d.idle <= d.promised && n <= ahead/2 {
		return 0
	}
	d.promised += n
	return n
}

// places is that of a spillway.WorkerConfig.
func (d *desk) places(ctx context.Context, unused int) int {
	d.note(func() { d.promised -= unused })
	for {
		if n := d.want(); n > 0 {
			return n
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// handle gives a job to a child, and returns what becomes of it.
func (d *desk) handle(ctx context.Context, job spillway.Job) error {
	t := &task{Job: job, ctx: ctx, done: make(chan error, 1)}
	stale := time.NewTimer(staleAfter)
	defer stale.Stop()
	d.mu.Lock()
	tasks, begun := d.tasks, false
	if d.paused {
		tasks = nil
	}
	d.mu.Unlock()
	select {
	case tasks <- t:
		begun = true
	case <-stale.C:
	case <-ctx.Done():
	}
	d.note(func() {
		d.promised--
		d.last = job.Tries > 0 && job.Attempt >= job.Tries
		if begun { // here, so that nobody sees the child idle and the job gone
			d.idle--
		}
	})
	if !begun {
		return spillway.ErrNotBegun
	}
	return <-t.done
}

// learn notes how long a job took.
func (d *desk) learn(took time.Duration) {
	d.mu.Lock()
	d.took += (took - d.took) / 8
	d.mu.Unlock()
}

// seat notes n more children that do jobs.
func (d *desk) seat(n int) { d.note(func() { d.seated += n }) }

// next waits for a job of a child, as long as a tick; nil: there is none. gone: the child has ended.
func (d *desk) next(ctx context.Context, tick time.Duration, gone <-chan struct{}) (t *task) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	d.note(func() { d.idle++ })
	select {
	case t = <-d.tasks:
	case <-timer.C:
	case <-gone:
	case <-ctx.Done():
	}
	if t == nil {
		d.note(func() { d.idle-- })
	}
	return t
}
