package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/guard"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/partition"
)

// Report sends the lines of a file or of stdin. One request is in flight at a
// time, so entries of a partition keep the order of the input, even with retries.
type Report struct {
	Input       string        `arg:"" optional:"" default:"-" help:"File of lines {\"partition\",\"data\",\"ts\"?,\"id\"?,\"offset_ms\"?}; - is stdin."`
	Server      string        `name:"server" default:"http://127.0.0.1:8080" help:"URL of the service's data port."`
	Namespace   string        `name:"namespace" default:"default" help:"Namespace to send to."`
	Token       string        `name:"token" placeholder:"TOKEN" help:"Token of the namespace. The environment variable SPILLWAY_TOKEN hides it from the process list."`
	Rate        float64       `name:"rate" xor:"pace" placeholder:"N" help:"Entries per second. Without it, as fast as the service accepts them."`
	ReplaySpeed float64       `name:"replay-speed" xor:"pace" placeholder:"X" help:"Send each entry offset_ms/X after the start, with the time of arrival: 1 is real time, 60 plays a minute in a second."`
	Timeout     time.Duration `name:"timeout" default:"30s" help:"Timeout of a batch, retries included."`
	SkipBad     bool          `name:"skip-bad" help:"Exit with 0 although some lines are invalid. They are counted."`
	Output      string        `name:"output" short:"o" enum:"text,json" default:"text" help:"Format of the summary: text or json."`
}

// Bounds of a request, below the service's default limits.
const (
	batchEntries = 500
	batchBytes   = 512 << 10
	maxLine      = batchBytes
	// paceSlot is the resolution of --rate and --replay-speed: entries that are
	// due within one slot are sent together, at its end.
	paceSlot = 50 * time.Millisecond
	// maxLineErrors is how many bad lines are described; the others are counted.
	maxLineErrors = 20
)

// summary is the result. Read = Accepted + Rejected + BadLines.
type summary struct {
	Read     int            `json:"read"`      // lines that are not blank
	Accepted int            `json:"accepted"`  // entries that the store has
	Evicted  int            `json:"evicted"`   // older entries that these evicted
	Rejected int            `json:"rejected"`  // entries rejected, not sent, or with an unknown outcome
	Retried  int            `json:"retried"`   // repeated requests
	BadLines int            `json:"bad_lines"` // lines that were not sent
	Seconds  float64        `json:"seconds"`
	Reasons  map[string]int `json:"reasons,omitempty"` // why entries were rejected: the service's reasons and codes, or not_confirmed
}

func (c *Report) validate() error {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("server: not a URL: write one such as http://127.0.0.1:8080")
	case !partition.ValidNamespace(c.Namespace):
		return fmt.Errorf("namespace: %q is not a name", c.Namespace)
	case !validPace(c.Rate):
		return partition.Wrong("rate", c.Rate, wantPace)
	case !validPace(c.ReplaySpeed):
		return partition.Wrong("replay_speed", c.ReplaySpeed, wantPace)
	case !validTimeout(c.Timeout):
		return partition.Wrong("timeout", c.Timeout, wantTimeout)
	}
	return nil
}

const (
	wantPace    = "0.001 to 1000000000, or no value"
	wantTimeout = "10ms to 1h"
)

// validPace: with less than 0.001, the time when an entry is due overflows. 0 is
// no limit.
func validPace(x float64) bool { return x == 0 || x >= 0.001 && x <= 1e9 }

// validTimeout: with less than 10ms, no request is answered in time.
func validTimeout(timeout time.Duration) bool {
	return timeout >= 10*time.Millisecond && timeout <= time.Hour
}

// Run sends them and prints a summary.
func (c *Report) Run(ctx context.Context, p config.Process) error {
	if _, err := config.FromEnv(config.SettingsOf(c), p); err != nil {
		return err
	}
	if err := c.validate(); err != nil {
		return config.Usage(err)
	}
	input := p.Stdin
	if c.Input != "-" {
		f, err := os.Open(c.Input)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		defer f.Close()
		input = f
	}
	r := reporter{
		cmd:    c,
		stderr: p.Stderr,
		start:  time.Now(),
		sum:    summary{Reasons: map[string]int{}},
		poster: c.poster(http.DefaultTransport),
	}
	err := r.run(ctx, input)
	r.finish()
	if printErr := r.sum.print(p.Stdout, c.Output); err == nil {
		err = printErr
	}
	if err == nil {
		err = r.sum.err(c.SkipBad)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (c *Report) poster(transport http.RoundTripper) *spillway.Poster {
	return spillway.NewPoster(c.Server, spillway.PosterConfig{
		Namespace: c.Namespace,
		Token:     c.Token,
		Timeout:   c.Timeout,
		Transport: transport,
	})
}

var errInterrupted = errors.New("interrupted before the end of the input")

// reporter is the state of one run of the command.
type reporter struct {
	cmd    *Report
	stderr io.Writer
	poster *spillway.Poster
	start  time.Time
	shown  time.Time // last progress line
	batch  [][]byte  // encoded items of the next request
	lines  []int     // where they stand in the input
	bytes  int
	sum    summary

	described int // lines
}

// run reads, paces and sends until the input or ctx ends, or a request fails for
// good.
func (r *reporter) run(ctx context.Context, input io.Reader) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	lines := make(chan line)
	var readErr error
	go func() {
		defer close(lines)
		readErr = readLines(reading, input, lines)
	}()
	for {
		var l line
		var ok bool
		select {
		case <-ctx.Done():
		case l, ok = <-lines:
		}
		// Also when both are ready: after an interrupt nothing more is sent.
		if ctx.Err() != nil {
			return errInterrupted
		}
		if !ok {
			return errors.Join(r.flush(ctx), readErr)
		}
		if err := r.add(ctx, l); err != nil {
			return err
		}
	}
}

// add adds one line to the batch, and sends the batch when it is full or due.
func (r *reporter) add(ctx context.Context, l line) error {
	r.sum.Read++
	it, err := l.item(r.cmd.ReplaySpeed > 0)
	if err != nil {
		r.badLine(l.number, err)
	} else {
		wait := time.Until(r.due(it))
		if wait > 0 || len(r.batch) == batchEntries || r.bytes+len(it.encoded) > batchBytes {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		if wait > 0 && !guard.Sleep(ctx, wait) {
			return errInterrupted
		}
		r.batch, r.lines = append(r.batch, it.encoded), append(r.lines, l.number)
		r.bytes += len(it.encoded)
	}
	if !l.more { // a slow writer must not delay entries
		return r.flush(ctx)
	}
	return nil
}

// due is when an entry is sent.
func (r *reporter) due(it item) time.Time {
	var after time.Duration
	switch before := r.sum.Read - r.sum.BadLines - 1; {
	case r.cmd.ReplaySpeed > 0:
		after = time.Duration(float64(it.offset) / r.cmd.ReplaySpeed)
	case r.cmd.Rate > 0:
		after = time.Duration(float64(before) / r.cmd.Rate * float64(time.Second))
	default:
		return time.Time{}
	}
	return r.start.Add((after + paceSlot - 1) / paceSlot * paceSlot)
}

// flush sends the batch, which is empty afterwards whatever the result.
func (r *reporter) flush(ctx context.Context) error {
	if len(r.batch) == 0 {
		return nil
	}
	result, err := r.poster.Post(ctx, r.batch)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errInterrupted, err)
	}
	r.sum.Accepted += result.Accepted
	r.sum.Evicted += result.Evicted
	r.sum.Retried += result.Retried
	for reason, n := range result.Rejected {
		r.sum.Reasons[reason] += n
	}
	for _, i := range result.Unread {
		r.describe(r.lines[i], errors.New("the service cannot read it: it nests too deep"))
	}
	r.batch, r.lines, r.bytes = r.batch[:0], r.lines[:0], 0
	if now := time.Now(); config.IsTerminal(r.stderr) && now.Sub(r.shown) >= time.Second {
		r.shown = now
		fmt.Fprintf(r.stderr, "\r%d read, %d accepted, %d rejected", r.sum.Read, r.sum.Accepted, r.sum.Rejected)
	}
	return err
}

// finish completes the summary. Entries that were neither accepted nor rejected
// with a reason were not sent or not answered.
func (r *reporter) finish() {
	if !r.shown.IsZero() {
		fmt.Fprintln(r.stderr) // below the progress line
	}
	s := &r.sum
	s.Seconds = time.Since(r.start).Seconds()
	s.Rejected = s.Read - s.BadLines - s.Accepted
	unanswered := s.Rejected
	for _, n := range s.Reasons {
		unanswered -= n
	}
	if unanswered > 0 {
		s.Reasons["not_confirmed"] = unanswered
	}
}

func (r *reporter) badLine(number int, err error) {
	r.sum.BadLines++
	r.describe(number, err)
}

func (r *reporter) describe(number int, err error) {
	r.described++
	switch {
	case r.described <= maxLineErrors:
		fmt.Fprintf(r.stderr, "line %d: %v\n", number, err)
	case r.described == maxLineErrors+1:
		fmt.Fprintln(r.stderr, "further bad lines are counted only")
	}
}

func (s summary) print(w io.Writer, form string) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintf(w, "%d read: %d accepted, %d rejected%s, %d bad lines; %d evicted, %d requests retried, %.1f s\n",
		s.Read, s.Accepted, s.Rejected, s.reasons(), s.BadLines, s.Evicted, s.Retried, s.Seconds)
	return err
}

// reasons is " (stale 3, too_large 1)", or nothing.
func (s summary) reasons() string {
	if len(s.Reasons) == 0 {
		return ""
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
		list = append(list, fmt.Sprintf("%s %d", reason, s.Reasons[reason]))
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// err is nil if everything read was accepted.
func (s summary) err(skipBad bool) error {
	if s.Rejected > 0 || s.BadLines > 0 && !skipBad {
		return fmt.Errorf("not everything was accepted: %d rejected%s, %d bad lines", s.Rejected,
			s.reasons(), s.BadLines)
	}
	return nil
}
