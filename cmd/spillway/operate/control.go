package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/alecthomas/kong"
	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// Nouns has the commands of a noun in the table of verbs.
type Nouns struct{ kong.Plugins }

// control runs a verb of what is made at run time.
func (c *verbCommand) control(ctx context.Context, s Streams, k *kong.Context) error {
	for _, f := range k.Flags() {
		if f.Set && f.Target.IsZero() && f.Tag.Get("bounds") != "" {
			return misuse("%s: want 1 or more; without the flag the rule does not say", f.Name)
		}
	}
	if c.row.Confirm != "" {
		return c.remove(ctx, s)
	}
	answer, err := c.post(ctx)
	if err != nil {
		return err
	}
	said := gjson.ParseBytes(answer)
	if replaced := said.Get("replaced"); replaced.Exists() {
		_ = s.tell("it replaced %s", escape(replaced.Raw))
	}
	if err := c.show(s, answer); err != nil || c.Output == "json" {
		return err
	}
	for _, rule := range said.Get("rules").Array() {
		if why := rule.Get("unused").String(); why != "" {
			_ = s.tell("%s does not count: %s", escape(rule.Get("match").String()), escape(why))
		}
	}
	if said.Get("token").String() == "" {
		return nil
	}
	return s.tell("The client sends the token (Authorization: Bearer). It is not shown again.")
}

// remove counts the jobs of a namespace, asks if there are any, and deletes it.
func (c *verbCommand) remove(ctx context.Context, s Streams) error {
	a := c.Ask.(approved).Approved()
	only := a.DryRun
	a.DryRun = true
	found, err := c.post(ctx)
	if err != nil {
		return err
	}
	n, name := gjson.GetBytes(found, "jobs").Int(), c.path["namespace"]
	_ = s.tell("%s: found %s", name, human.Some(n, "job", "jobs"))
	if only {
		return c.print(s, found, name+": nothing was changed")
	}
	if n > 0 {
		if err := c.More.(*agreement).ask(ctx, s, n, c.row.Confirm); err != nil {
			return err
		}
	}
	a.DryRun = false
	answer, err := c.post(ctx)
	if err != nil {
		return err
	}
	return c.show(s, answer)
}

// post asks the admin port what is made at run time.
func (c *verbCommand) post(ctx context.Context) (json.RawMessage, error) {
	args, path, _ := c.row.Write(c.Ask)
	maps.Copy(path, args)
	c.path = path
	call := c.call("/api/v1" + c.route())
	if of, ok := c.Ask.(interface{ Check() error }); ok && of.Check() != nil {
		call.check(misuse("%w", of.Check()))
	}
	if name, ok := path["namespace"]; ok {
		call.check(validNamespace(name))
	}
	if !c.row.Acts() {
		return call.get(ctx, new(any))
	}
	return call.post(ctx, c.Ask, new(any))
}

// derived are the cells that are made of more than one part of a line.
var derived = map[string]func(gjson.Result) string{
	"made": func(line gjson.Result) string {
		if line.Get("from_file").Bool() {
			return "in the file"
		}
		return time.UnixMilli(line.Get("created_at_ms").Int()).UTC().Format("2006-01-02")
	},
	"requests": func(line gjson.Result) string {
		l := line.Get("limit")
		if !l.IsObject() {
			return ""
		}
		return fmt.Sprintf("read %d, write %d in %ds", l.Get("read").Int(), l.Get("write").Int(), l.Get("interval").Int())
	},
	"stored": func(line gjson.Result) string {
		if line.Get("readable").Bool() {
			return "text"
		}
		return "hash"
	},
}
