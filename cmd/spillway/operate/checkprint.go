package operate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

func (c *Check) print(s Streams, r *checkResult) error {
	var err error
	switch c.Output {
	case "json":
		err = printJSON(s.Out, r)
	case "nagios":
		_, err = fmt.Fprintln(s.Out, c.nagios(r))
	default:
		_, err = fmt.Fprint(s.Out, r.text(c.Since))
	}
	return err
}

// text is a headline, and a line for each finding, or each namespace if all is well.
func (r *checkResult) text(since time.Duration) string {
	var b strings.Builder
	fmt.Fprintln(&b, strings.ToUpper(r.Status.String()))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %-8s  %s\n", f.Status, f.text())
	}
	if len(r.Findings) == 0 {
		for _, f := range r.Figures {
			fmt.Fprintf(
				&b,
				"  %s: %s wait, the oldest at %.0f%% of max_age; in %s/s, out %s/s, dropped %s; %s%s\n",
				f.Namespace,
				some(f.Backlog, "entry", "entries"),
				f.OldestAgeShare*100,
				rate(f.acceptedPerS),
				rate(f.deliveredPerS),
				f.dropped(),
				some(f.deadLettersKept, "dead letter", "dead letters"),
				audited(f.Residual),
			)
		}
		for _, f := range r.Queues {
			fmt.Fprintf(&b, "  %s\n", f.text(since))
		}
	}
	return b.String()
}

func (f *figure) dropped() string {
	if f.Dropped == nil {
		return rate(f.DroppedPerS) + "/s"
	}
	return digits(*f.Dropped)
}

// audited says that the ledger was compared, if it was: a residual that is not 0 is a finding.
func audited(residual *int64) string {
	if residual == nil {
		return ""
	}
	return fmt.Sprintf("; residual %d", *residual)
}

func (f *finding) text() string {
	text := strings.ReplaceAll(f.Message, "\n", "; ")
	if f.Namespace != "" {
		text = f.Namespace + ": " + text
	}
	return text
}

// nagios is one line: the findings, a bar, and performance data as
// 'label'=value;warning;critical;minimum.
func (c *Check) nagios(r *checkResult) string {
	var messages []string
	for _, f := range r.Findings {
		messages = append(messages, f.text())
	}
	if len(messages) == 0 {
		messages = []string{some(int64(len(r.Figures)+len(r.Queues)), "namespace is",
			"namespaces are") + " well"}
	}
	// A bar ends the text.
	text := strings.ReplaceAll(strings.Join(messages, "; "), "|", "/")
	var data []string
	add := func(label string, value float64, unit string, warning, critical float64) {
		data = append(data, fmt.Sprintf("'%s'=%s%s;%s;%s;0", label, number(value), unit,
			threshold(warning),
			threshold(critical)))
	}
	sinkAndResidual := func(namespace string, failing float64, residual *int64) {
		add(namespace+"_sink_failing", failing, "s", c.SinkWarning.Seconds(), c.SinkCritical.Seconds())
		if residual != nil {
			add(namespace+"_residual", float64(*residual), "", 0, 0)
		}
	}
	backlogWarning, backlogCritical := float64(c.BacklogWarning), float64(c.BacklogCritical)
	for _, f := range r.Figures {
		add(f.Namespace+"_oldest_age_share", f.OldestAgeShare, "", c.AgeWarning, c.AgeCritical)
		add(f.Namespace+"_backlog", float64(f.Backlog), "", backlogWarning, backlogCritical)
		add(f.Namespace+"_dropped_per_s", f.DroppedPerS, "", c.DropsWarning, c.DropsCritical)
		if f.Dropped != nil {
			add(f.Namespace+"_dropped", float64(*f.Dropped), "", 0, 0)
		}
		sinkAndResidual(f.Namespace, f.FailingSecs, f.Residual)
	}
	for _, f := range r.Queues {
		add(f.Namespace+"_ready_age", f.ReadyAgeSec, "s", c.ReadyAgeWarning.Seconds(),
			c.ReadyAgeCritical.Seconds())
		add(f.Namespace+"_ready", float64(f.Ready), "", backlogWarning, backlogCritical)
		add(f.Namespace+"_dead", float64(f.Dead), "", 0, 0)
		add(f.Namespace+"_fill", f.Fill, "", fillWarning, fillCritical)
		add(f.Namespace+"_failed_per_s", f.FailedPerS, "", c.DropsWarning, c.DropsCritical)
		add(f.Namespace+"_lost", float64(f.Lost), "", 0, 0)
		sinkAndResidual(f.Namespace, f.FailingSecs, f.Residual)
	}
	line := "SPILLWAY " + strings.ToUpper(r.Status.String()) + " - " + text
	if len(data) > 0 {
		line += " | " + strings.Join(data, " ")
	}
	return line
}

// number has at most three decimals.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

func threshold(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}
