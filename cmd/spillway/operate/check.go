package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Check is a probe for monitoring systems: it prints what the service finds.
type Check struct {
	Connection `embed:""` // not by command: this one tells which variables there are
	output     `embed:""`

	Namespace string `arg:"" optional:"" help:"Only this namespace."`
	Audit     bool   `help:"Count every entry and job, too, and compare with the ledger. It costs the store a read of every partition and queue."`
}

// unknown is the level of a check that was not made.
const unknown admin.Level = "unknown"

// exitCodes are those of monitoring plugins.
var exitCodes = map[admin.Level]int{admin.OK: 0, admin.Notice: 0, admin.Risk: 1, admin.Loss: 2, unknown: 3}

// statusError is the exit code of a check whose result is printed already.
type statusError int

func (e statusError) Error() string { return "" }
func (e statusError) ExitCode() int { return int(e) }

// ExitCode is the code of wrong usage: that of check is unknown, for 2 would be
// critical. k is what was understood of the command line.
func ExitCode(k *kong.Context, code int) int {
	if k != nil && code != 0 {
		if c := k.Selected(); c != nil && c.Name == "check" && c.Parent.Type == kong.ApplicationNode {
			return exitCodes[unknown]
		}
	}
	return code
}

// Run prints the findings; its error has the exit code.
func (c *Check) Run(ctx context.Context, s Streams) error {
	var found admin.Findings
	raw, err := c.call("/api/v1/findings").of(c.Namespace).on("audit", c.Audit).get(ctx, &found)
	if err != nil {
		found = admin.Findings{Level: unknown, Headline: "the check was not made"} // wrong flags, no right to ask
		if errors.As(err, new(noAnswer)) || answered(err).status >= http.StatusInternalServerError {
			found.Level, found.Headline = admin.Loss, "no answer: whether data is being lost is unknown"
		}
		found.Findings = []admin.Finding{{Level: found.Level, What: err.Error()}}
	}
	if c.Output == "json" && err == nil {
		err = printJSON(s.Out, raw)
	} else if c.Output == "json" {
		err = printJSON(s.Out, found)
	} else {
		// To a monitoring system, a bar ends the text.
		_, err = fmt.Fprintln(s.Out, strings.ReplaceAll(strings.Join(findingLines(strings.ToUpper(string(found.Level))+": "+found.Headline,
			found.Findings), "\n"), "|", "/"))
	}
	code, known := exitCodes[found.Level]
	if !known {
		code = exitCodes[unknown]
	}
	if err != nil || code == 0 {
		return err
	}
	return statusError(code)
}

// findingLines are a headline and a line for each finding.
func findingLines(headline string, found []admin.Finding) []string {
	lines := []string{headline}
	for _, f := range found {
		lines = append(lines, fmt.Sprintf("  %-6s  %s", f.Level, escape(f.Text())))
	}
	return lines
}
