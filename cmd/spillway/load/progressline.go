package load

import (
	"fmt"
	"io"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

// progressLine says how far a command is: on a terminal on one line, once a second;
// elsewhere on a line of its own, every 10 s.
type progressLine struct {
	w        io.Writer
	every    time.Duration
	terminal bool
	next     time.Time
	shown    bool
}

func newProgressLine(w io.Writer) *progressLine {
	p := &progressLine{
		w:        w,
		every:    10 * time.Second,
		terminal: config.IsTerminal(w),
		next:     time.Now().Add(progressFirst),
	}
	if p.terminal {
		p.every = time.Second
	}
	return p
}

// progressFirst is when the first line is due: shorter commands print none. It is
// below a second, so that what reports each second is in time.
const progressFirst = 900 * time.Millisecond

// show prints unless it is too soon. It is called by one goroutine at a time.
func (p *progressLine) show(format string, args ...any) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(p.every-time.Second+progressFirst), true
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r"+format+"\x1b[K", args...)
		return
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// end leaves the last line where it is.
func (p *progressLine) end() {
	if p.shown && p.terminal {
		_, _ = fmt.Fprintln(p.w)
	}
}
