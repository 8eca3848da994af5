package operate

import "context"

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
