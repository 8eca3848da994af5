package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

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
