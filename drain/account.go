package drain

import "github.com/spillway-io/spillway/partition"

// A class is how an entry of a lease ended.
type class uint8

const (
	pending class = iota // not yet, or not for this lease
	delivered
	expired
	dead
	classes = iota
)

// An account is what is known of the entries of one lease. Positions count from
// the lease's From. Because it remembers every entry, a commit can be made for
// any range that the store asks for, whatever the result of an earlier one.
type account struct {
	lease   *partition.Lease
	classes []class
	letters map[int]deadLetter // by position
	done    int                // the entries in [settled, done) all have a class
	settled int                // the entries before it are settled in the store, or gone from it
}

// A deadLetter is the record of a dead entry, and why the sink rejected it.
type deadLetter struct {
	line  []byte
	cause error
}

func newAccount(lease *partition.Lease) account {
	a := account{lease: lease, classes: make([]class, len(lease.Entries))}
	for at, done := range lease.Done {
		if done {
			a.mark(at, delivered)
		}
	}
	return a
}

func (a *account) mark(at int, c class) { a.classes[at] = c }

// deadLetter marks an entry dead; its letter goes out with the commit.
func (a *account) deadLetter(at int, letter deadLetter) {
	if a.letters == nil {
		a.letters = make(map[int]deadLetter)
	}
	a.letters[at] = letter
	a.classes[at] = dead
}

// progress moves done over the entries that have a class by now.
func (a *account) progress() int {
	for a.done < len(a.classes) && a.classes[a.done] != pending {
		a.done++
	}
	return a.done
}

// commit is the commit of all that is done and not settled, nil when that is
// nothing.
func (a *account) commit() *partition.Commit {
	if a.progress() <= a.settled {
		return nil
	}
	n := a.count(a.settled, a.done)
	c := &partition.Commit{
		Lease:     a.lease,
		Lo:        a.lease.From + int64(a.settled),
		Hi:        a.lease.From + int64(a.done),
		Delivered: n[delivered],
		Expired:   n[expired],
		Dead:      n[dead],
	}
	for at := a.settled; at < a.done && n[dead] > 0; at++ {
		if a.classes[at] == dead {
			c.DeadLetters = append(c.DeadLetters, a.letters[at].line)
		}
	}
	return c
}

// count is how many entries of [lo, hi) there are of each class.
func (a *account) count(lo, hi int) (n [classes]int) {
	for _, c := range a.classes[lo:hi] {
		n[c]++
	}
	return n
}

// release gives the rest back; the caller sets when it comes due and how often it
// was presented. What the sink accepted behind the first entry that must wait is not
// presented again.
func (a *account) release() *partition.Release {
	r := &partition.Release{Lease: a.lease}
	if a.count(a.settled, len(a.classes))[delivered] > 0 {
		r.Done = make([]bool, len(a.classes))
		for at := a.settled; at < len(a.classes); at++ {
			r.Done[at] = a.classes[at] == delivered
		}
	}
	return r
}

// startAt notes that the store's range starts at seq, whatever is known of the
// entries before it. It is false when that is outside of the lease, or where the
// rejected commit began.
func (a *account) startAt(seq int64) bool {
	at := seq - a.lease.From
	if at < 0 || at > int64(len(a.classes)) || at == int64(a.settled) {
		return false
	}
	a.settled, a.done = int(at), int(at)
	return true
}
