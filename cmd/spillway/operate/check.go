package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Check is a probe for monitoring systems.
type Check struct {
	Connection `embed:""`

	Output           string        `short:"o" enum:"text,json,nagios" default:"text" help:"Output format: text, json or nagios. nagios is one line with performance data."`
	Namespace        string        `arg:"" optional:"" help:"Only this namespace."`
	AgeWarning       float64       `group:"Thresholds:" default:"0.5" help:"Age of the oldest entry as a share of max_age, from which on it is a warning; 0 is off."`
	AgeCritical      float64       `group:"Thresholds:" default:"0.8" help:"The same for critical."`
	ReadyAgeWarning  time.Duration `group:"Thresholds:" default:"0" help:"Time since the publish of the oldest ready job of a namespace of kind queue, from which on it is a warning; 0 is off."`
	ReadyAgeCritical time.Duration `group:"Thresholds:" default:"0" help:"The same for critical."`
	BacklogWarning   int64         `group:"Thresholds:" default:"0" help:"Waiting entries, or ready jobs, of a namespace from which on it is a warning; 0 is off."`
	BacklogCritical  int64         `group:"Thresholds:" default:"0" help:"The same for critical."`
	DropsWarning     float64       `group:"Thresholds:" default:"0.001" help:"Entries evicted, expired, dead or lost, or jobs expired or dead, per second, the mean over --since, from which on it is a warning: by default, any. 0 is off."`
	DropsCritical    float64       `group:"Thresholds:" default:"1" help:"The same for critical, without dead letters, which are kept."`
	Since            time.Duration `group:"Thresholds:" default:"1m" help:"Time over which drops count, 1s to 15m: no less than the time between two probes."`
	SinkWarning      time.Duration `group:"Thresholds:" default:"1s" help:"How long a sink fails until it is a warning; 0 is off."`
	SinkCritical     time.Duration `group:"Thresholds:" default:"1m" help:"The same for critical."`
	Audit            bool          `help:"Count every entry and job, too, and compare with the ledger. It costs the store a read of every partition and queue."`
}

// Exit codes of monitoring plugins.
const (
	statusOK       status = 0
	statusWarning  status = 1
	statusCritical status = 2
	statusUnknown  status = 3
)

type status int

func (s status) String() string { return [...]string{"ok", "warning", "critical", "unknown"}[s] }

// MarshalText is the name of the status.
func (s status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// worse orders by what needs attention first: unknown is worse than a warning only.
func (s status) worse(than status) bool {
	rank := [...]int{0, 1, 3, 2}
	return rank[s] > rank[than]
}

// statusError is the exit code of a check whose result is printed already.
type statusError struct{ status }

func (e statusError) Error() string { return "" }
func (e statusError) ExitCode() int { return int(e.status) }

// ExitCode is the code of wrong usage: that of check is unknown, for 2 would be
// critical. k is what was understood of the command line.
func ExitCode(k *kong.Context, code int) int {
	if k != nil && code != 0 {
		if c := k.Selected(); c != nil && c.Name == "check" && c.Parent.Type == kong.ApplicationNode {
			return int(statusUnknown)
		}
	}
	return code
}

// finding is one thing that is not ok.
type finding struct {
	Status    status `json:"status"`
	Namespace string `json:"namespace,omitempty"`
	Check     string `json:"check"` // answer, ready, store_full, oldest_age, backlog, drops, sink, shards, paused or residual; of queues lost, failed, ready_age, backlog, fill, overdue, owners, outbox, sink or residual
	Message   string `json:"message"`
}

// figure is what was measured of one namespace.
type figure struct {
	Namespace       string  `json:"namespace"`
	OldestAgeShare  float64 `json:"oldest_age_share"` // of max_age
	Backlog         int64   `json:"backlog"`
	Dropped         *int64  `json:"dropped,omitempty"` // entries in --since; absent: unknown
	DroppedPerS     float64 `json:"dropped_per_s"`     // the mean over --since; of the last 5 s if Dropped is absent
	FailingSinks    int     `json:"failing_sinks"`
	FailingSecs     float64 `json:"failing_s"` // the sink that fails for longest
	Residual        *int64  `json:"residual,omitempty"`
	acceptedPerS    float64
	deliveredPerS   float64
	deadLettersKept int64
}

// checkResult is what a check prints.
type checkResult struct {
	Status   status        `json:"status"`
	ExitCode int           `json:"exit_code"`
	Findings []finding     `json:"findings"`
	Figures  []figure      `json:"namespaces"`
	Queues   []queueFigure `json:"queues"`
}

func (r *checkResult) add(s status, namespace, check, format string, args ...any) {
	r.Findings = append(r.Findings, finding{s, namespace, check, fmt.Sprintf(format, args...)})
	if s.worse(r.Status) {
		r.Status = s
	}
}

// Run prints the result; its error has the exit code.
func (c *Check) Run(ctx context.Context, s Streams) error {
	r := checkResult{Findings: []finding{}, Figures: []figure{}, Queues: []queueFigure{}}
	if err := c.measure(ctx, &r); err != nil {
		found := statusUnknown // wrong flags, no right to ask
		if errors.As(err, new(noAnswer)) || answered(err).status >= http.StatusInternalServerError {
			found = statusCritical
		}
		r.add(found, "", "answer", "%s", err)
	}
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		switch {
		case a.Status.worse(b.Status):
			return -1
		case b.Status.worse(a.Status):
			return 1
		}
		return 0
	})
	r.ExitCode = int(r.Status)
	if err := c.print(s, &r); err != nil {
		return err
	}
	if r.Status == statusOK {
		return nil
	}
	return statusError{r.Status}
}

func (c *Check) measure(ctx context.Context, r *checkResult) error {
	if c.Since < time.Second || c.Since > maxSince {
		return misuse("since: %v: want 1s to %v", c.Since, maxSince)
	}
	overview := c.call("/api/v1/overview").of(c.Namespace)
	if overview.err != nil {
		return overview.err
	}
	var ready struct{}
	if _, err := c.call("/readyz").get(ctx, &ready); err != nil {
		failed := answered(err)
		if failed.status != http.StatusServiceUnavailable {
			return err
		}
		r.add(statusCritical, "", "ready", "not ready: %s", escape(failed.message))
	}
	wait := sweepWait
	if len(r.Findings) > 0 { // a store that fails is not waited for
		wait = 0
	}
	o, err := c.overview(ctx, overview, wait)
	if err != nil {
		if len(r.Findings) > 0 { // not ready explains it
			return nil
		}
		return err
	}
	if o.full() {
		r.add(statusCritical, "", "store_full", "%s; %s", storeFull, o.warnings())
	}
	for _, n := range o.Namespaces {
		if o.Store.Ready && stale(n.ReadAtMS, o.NowMS) {
			r.add(statusCritical, n.Namespace, "answer", "%s", unread(n.ReadAtMS, o.NowMS))
		}
		counts, err := c.dropped(ctx, n.Namespace, c.Since)
		if err != nil {
			return err
		}
		f := c.compare(r, o, n, counts)
		if c.Audit {
			if f.Residual, err = c.residual(ctx, r, n.Namespace); err != nil {
				return err
			}
		}
		r.Figures = append(r.Figures, f)
	}
	for _, q := range o.Queues {
		// The Redis of one pool may be away, and the others are checked all the same.
		if err := c.checkQueue(ctx, r, o.NowMS, q); storeAway(err) {
			r.add(statusCritical, q.Namespace, "answer", "%s", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// storeAway reports whether the service says that a store did not answer.
func storeAway(err error) bool { return answered(err).code == string(wire.CodeStoreUnavailable) }

// overview asks for the oldest partition first: that starts the sweep, from which
// the overview knows the oldest age.
func (c *Check) overview(ctx context.Context, call *call, wait time.Duration) (*overview, error) {
	names, err := c.ofPartitions(ctx, c.Namespace)
	if err != nil {
		return nil, err
	}
	if _, err := c.partitions(ctx, names, partitionQuery{sort: "age", limit: 1}, wait); err != nil {
		return nil, err
	}
	var o overview
	_, err = call.get(ctx, &o)
	return &o, err
}

// compare holds one namespace against the thresholds. Without counts, drops are those
// of the overview.
func (c *Check) compare(r *checkResult, o *overview, n namespaceState, counts *rates) figure {
	f := figure{
		Namespace:       n.Namespace,
		OldestAgeShare:  n.ageShare(),
		Backlog:         n.Buffered,
		DroppedPerS:     n.Rates.dropped(),
		acceptedPerS:    n.Rates.Accepted,
		deliveredPerS:   n.Rates.Delivered,
		deadLettersKept: n.DeadLetters,
	}
	if s := above(f.OldestAgeShare, c.AgeWarning, c.AgeCritical); s != statusOK {
		r.add(s, n.Namespace, "oldest_age", "the oldest entry waits for %s of %s (%.0f%%)",
			since(*n.OldestAgeMS), since(n.MaxAgeMS), f.OldestAgeShare*100)
	}
	if s := above(float64(f.Backlog), float64(c.BacklogWarning),
		float64(c.BacklogCritical)); s != statusOK {
		r.add(s, n.Namespace, "backlog", "%s wait", some(f.Backlog, "entry", "entries"))
	}
	drops, lostPerS := n.dropText(), n.Rates.lost()
	if counts != nil {
		total := wholeEntries(counts.dropped())
		lostPerS = counts.lost() / c.Since.Seconds()
		f.Dropped, f.DroppedPerS = &total, float64(total)/c.Since.Seconds() // one drop in 15 min is above 0.001
		about := ""
		if total >= 100 { // the sum of rates, whose seconds are not exactly as long
			about = "about "
		}
		drops = fmt.Sprintf("dropped %s%d in the last %v: %s", about, total, c.Since,
			counts.dropText(n.MaxAgeMS, func(v float64) string { return digits(wholeEntries(v)) }))
	}
	if s := max(above(f.DroppedPerS, c.DropsWarning, 0), above(lostPerS, c.DropsWarning,
		c.DropsCritical)); s != statusOK {
		r.add(s, n.Namespace, "drops", "%s%s", drops, n.maker())
	}
	idle := ""
	if n.Buffered == 0 {
		idle = "no entry waits for it, the next one tries it again"
	}
	f.FailingSinks, f.FailingSecs = c.sinks(r, o.NowMS, n.Namespace, n.Sinks, idle)
	if n.Paused != nil {
		r.add(statusWarning, n.Namespace, "paused", "delivery is %s", pauseText(n.Paused, o.NowMS))
	} else if n.PausedPartitions > 0 {
		r.add(statusWarning, n.Namespace, "paused", "%s paused",
			some(n.PausedPartitions, "partition is", "partitions are"))
	}
	return f
}

// sinks holds the sinks of a namespace against the thresholds. idle says that nothing waits for
// them: then one that fails cannot recover, which is a warning at most.
func (c *Check) sinks(r *checkResult, now int64, namespace string, sinks []admin.Sink,
	idle string) (failing int, seconds float64) {
	for _, sink := range sinks {
		if !fails(&sink) {
			continue
		}
		failing++
		lasts := 1.0 // a sink that fails since an unknown time fails
		if sink.FailingSinceMS != nil {
			lasts = float64(now-*sink.FailingSinceMS) / 1000
		}
		seconds = max(seconds, lasts)
		s, text := above(lasts, c.SinkWarning.Seconds(),
			c.SinkCritical.Seconds()), failureText(&sink, now)
		if s == statusCritical && idle != "" {
			s, text = statusWarning, text+"; "+idle
		}
		if s != statusOK {
			r.add(s, namespace, "sink", "%s", text)
		}
	}
	return failing, seconds
}

// above is the status of a value that is at its worst when high. A threshold of 0 is off.
func above(value, warning, critical float64) status {
	switch {
	case critical > 0 && value >= critical:
		return statusCritical
	case warning > 0 && value >= warning:
		return statusWarning
	}
	return statusOK
}

// audits is how often a residual must be the same: entries that move while they are
// counted make one that changes.
const audits = 3

// residual compares the ledger with a count of the entries or jobs.
func (c *Check) residual(ctx context.Context, r *checkResult, namespace string) (*int64, error) {
	call := c.namespace(namespace).on("audit", true)
	var first int64
	for i := range audits {
		var account admin.Account
		if _, err := call.get(ctx, &account); err != nil {
			return nil, err
		}
		if account.Residual == nil {
			return nil, fmt.Errorf("%s: %s", call.base, notSpillway)
		}
		if i == 0 {
			first = *account.Residual
		}
		if *account.Residual == 0 || *account.Residual != first {
			return new(int64), nil
		}
	}
	r.add(statusCritical, namespace, "residual", "the ledger and a count differ by %d", first)
	return &first, nil
}
