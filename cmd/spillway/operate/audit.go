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
	Connection `embed:""`
	output     `embed:""`

	Limit int `default:"50" help:"Acts to list, at most 1000."`
}

// Run prints the list, the newest first.
func (c *Audit) Run(ctx context.Context, s Streams) error {
	if err := within("limit", c.Limit, 1000); err != nil {
		return err
	}
	api, err := c.open()
	if err != nil {
		return err
	}
	var answer struct {
		Acts []json.RawMessage `json:"acts"`
	}
	if _, err := api.get(ctx, "/api/v1/audit", nil, &answer); err != nil {
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
			return fmt.Errorf("%s: %s", api.base, notSpillway)
		}
		entries := "-"
		if a.Entries != nil {
			entries = digits(*a.Entries)
		}
		of := "-"
		if a.Namespace != "" {
			of = scope(a.Namespace, cmp.Or(a.Partition, a.Queue))
		}
		result, detail := a.Result, a.Detail
		if result != "ok" { // an error text, of several lines for a reload
			result, detail = "failed", strings.ReplaceAll(a.Result, "\n", "; ")
		}
		t.add(clock(a.AtMS), a.Name, a.Role, a.Action, of, entries, result, detail)
	}
	return t.print(s.Out)
}

// Reload makes the service read its configuration again.
type Reload struct {
	Connection `embed:""`
	output     `embed:""`
}

// Run prints what changed.
func (c *Reload) Run(ctx context.Context, s Streams) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	var answer struct {
		Changed []string `json:"changed"`
	}
	raw, err := api.post(ctx, "/api/v1/reload", struct{}{}, &answer)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printJSON(s.Out, json.RawMessage(raw))
	}
	if len(answer.Changed) == 0 {
		_, err := fmt.Fprintln(s.Out, "Nothing changed.")
		return err
	}
	var b strings.Builder
	fmt.Fprintln(&b, "Reloaded. Changed:")
	for _, key := range answer.Changed {
		fmt.Fprintf(&b, "  %s\n", escape(key))
	}
	_, err = s.Out.Write([]byte(b.String()))
	return err
}
