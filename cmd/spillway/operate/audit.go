package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// Audit lists what people did.
type Audit struct {
	command `embed:""`

	Limit int `default:"50" help:"Acts to list, at most 1000."`
}

// Run prints the list, the newest first.
func (c *Audit) Run(ctx context.Context, s Streams) error {
	call := c.call("/api/v1/audit").within("limit", c.Limit, 1000)
	var answer struct {
		Acts []json.RawMessage `json:"acts"`
	}
	if _, err := call.get(ctx, &answer); err != nil {
		return err
	}
	answer.Acts = answer.Acts[:min(len(answer.Acts), c.Limit)]
	if c.Output == "json" {
		return printJSON(s.Out, map[string]any{"acts": answer.Acts})
	}
	if len(answer.Acts) == 0 {
		_, err := fmt.Fprintln(s.Out, "Nobody changed anything since this process started.")
		return err
	}
	t := newTable("WHEN", "NAME", "ROLE", "ACTION", "OF", ">ENTRIES", "RESULT", "DETAIL")
	for _, raw := range answer.Acts {
		var a admin.Act
		if err := json.Unmarshal(raw, &a); err != nil {
			return fmt.Errorf("%s: %s", call.base, notSpillway)
		}
		of := "-"
		if a.Namespace != "" {
			of = scope(a.Namespace, cmp.Or(a.Partition, a.Queue))
		}
		result, detail := a.Result, a.Detail
		if result != "ok" { // an error text, of several lines for a reload
			result, detail = "failed", strings.ReplaceAll(a.Result, "\n", "; ")
		}
		t.add(
			clock(a.AtMS),
			a.Name,
			a.Role,
			a.Action,
			of,
			digitsOr(a.Entries, "-"),
			result,
			detail,
		)
	}
	return t.print(s.Out)
}

// Reload makes the service read its configuration again.
type Reload struct {
	command `embed:""`
}

// Run prints what changed.
func (c *Reload) Run(ctx context.Context, s Streams) error {
	var answer struct {
		Changed []string `json:"changed"`
	}
	raw, err := c.call("/api/v1/reload").post(ctx, struct{}{}, &answer)
	if err != nil {
		return err
	}
	text := "Reloaded. Changed:"
	if len(answer.Changed) == 0 {
		text = "Nothing changed."
	}
	for _, key := range answer.Changed {
		text += "\n  " + escape(key)
	}
	return c.print(s, raw, text)
}
