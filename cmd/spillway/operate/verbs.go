package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/human"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/schedule"
)

// New returns the commands, with those of the table of verbs.
func New() (c Commands) {
	c.Jobs.Plugins, c.Schedules.Plugins = Verbs("jobs"), Verbs("schedules")
	c.Rules.Plugins, c.Ns.Plugins, c.AdminToken.Plugins = Verbs("rules"), Verbs("ns"), Verbs("admin-token")
	return c
}

// Schedules has the commands for schedules.
type Schedules struct {
	kong.Plugins
	Check SchedulesCheck `cmd:"" help:"Print the ticks to come of a specification. No service is asked."`
}

// SchedulesCheck reads a specification.
type SchedulesCheck struct {
	command `embed:""`

	File  []byte    `short:"f" required:"" type:"filecontent" placeholder:"FILE" help:"The specification, YAML or JSON; - is stdin."`
	Count int       `default:"10" help:"Ticks to print."`
	From  time.Time `placeholder:"TIME" help:"Ticks after this time, RFC 3339. Default now."`
}

// Run prints its ticks.
func (c *SchedulesCheck) Run(s Streams) error {
	text, err := asJSON(c.File)
	if err != nil {
		return err
	}
	spec, err := schedule.Parse(text)
	if err != nil {
		return err
	}
	if c.From.IsZero() {
		c.From = time.Now()
	}
	next := spec.Times(c.From, c.Count)
	return c.print(s, map[string]any{"next": next}, strings.Join(next, "\n"))
}

// asJSON is a text that may be YAML.
func asJSON(text []byte) ([]byte, error) {
	var value map[string]any
	if json.Valid(text) {
		return text, nil
	}
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("neither JSON nor YAML: %w", err)
	}
	return json.Marshal(value)
}

// Verbs are the commands of a noun in the table.
func Verbs(noun string) kong.Plugins {
	var fields []reflect.StructField
	var commands []verbCommand
	for _, row := range slices.Concat(verb.Rows, verb.Controls) {
		name, is := strings.CutPrefix(row.Command, noun+" ")
		if !is {
			continue
		}
		fields = append(fields, reflect.StructField{
			Name: "Verb" + digits(len(fields)),
			Type: reflect.TypeFor[verbCommand](),
			Tag:  reflect.StructTag(`cmd:"" name:"` + name + `" help:` + strconv.Quote(row.Help)),
		})
		c := verbCommand{Of: &inNamespace{}, Ask: row.Ask(), row: row}
		if slices.Contains(verb.Controls, row) {
			c.Of = nil
		}
		if _, counts := c.Ask.(approved); counts {
			c.More = &agreement{}
		} else if row.Confirm != "" {
			c.More = &several{}
		} else if row.Masked {
			c.More = &unmasked{}
		}
		commands = append(commands, c)
	}
	all := reflect.New(reflect.StructOf(fields))
	for i, c := range commands {
		all.Elem().Field(i).Set(reflect.ValueOf(c))
	}
	return kong.Plugins{all.Interface()}
}

// inNamespace is of verbs of a namespace that has its store.
type inNamespace struct {
	Namespace string `arg:"" help:"The namespace."`
}

type approved interface{ Approved() *verb.Approval }

// several are more jobs than the one that the verb asks.
type several struct {
	Jobs      []string `arg:"" optional:"" help:"More of them."`
	agreement `embed:""`
}

type unmasked struct {
	Unmasked bool `help:"Show the values of masked fields. Needs the role admin."`
}

// A verbCommand runs a verb of the table.
type verbCommand struct {
	command `embed:""`

	Of   any `embed:""` // *inNamespace, or nothing
	Ask  any `embed:""`
	More any `embed:""`
	row  *verb.Row
	path map[string]string // names in it, and headers
}

// Run asks, and prints the answer.
func (c *verbCommand) Run(ctx context.Context, s Streams, k *kong.Context) error {
	if c.Of == nil {
		return c.control(ctx, s, k)
	}
	switch more := c.More.(type) {
	case *agreement:
		return c.confirmed(ctx, s, more)
	case *several:
		job := reflect.ValueOf(c.Ask).Elem().FieldByName("Job")
		jobs := append([]string{job.String()}, more.Jobs...)
		if err := cmp.Or(validJobs(jobs...), more.ask(ctx, s, int64(len(jobs)), c.row.Confirm)); err != nil {
			return err
		}
		var failures []error
		for _, id := range jobs {
			job.SetString(id)
			if err := c.once(ctx, s); err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", id, err))
			}
		}
		return errors.Join(failures...)
	}
	return c.once(ctx, s)
}

func (c *verbCommand) once(ctx context.Context, s Streams) error {
	answer, err := c.send(ctx)
	if err != nil {
		return err
	}
	return c.show(s, answer)
}

// confirmed counts, asks, and does as many as were agreed to.
func (c *verbCommand) confirmed(ctx context.Context, s Streams, more *agreement) error {
	a := c.Ask.(approved).Approved()
	only := a.DryRun
	a.DryRun = true
	found, err := c.send(ctx)
	if err != nil {
		return err
	}
	n := gjson.GetBytes(found, "jobs").Int()
	_ = s.tell("%s: found %s", c.path["queue"], human.Some(n, "job", "jobs"))
	if n == 0 && c.row.None != "" {
		_ = s.tell("%s", c.fill(c.row.None, gjson.ParseBytes(found), "0", " "))
	}
	if n == 0 || only {
		return c.print(s, found, c.path["queue"]+": nothing was changed")
	}
	if err := more.ask(ctx, s, n, c.row.Confirm); err != nil {
		return err
	}
	done := map[string]any{}
	for left, total := n, int64(0); left > 0; {
		*a = verb.Approval{Confirm: left}
		answer, err := c.send(ctx)
		if err != nil {
			return err
		}
		_ = json.Unmarshal(answer, &done) // which exchange did before
		part := gjson.GetBytes(answer, "jobs").Int()
		if part == 0 && total == 0 {
			break
		}
		left, total = left-part, total+part
		if done["jobs"] = total; part == 0 || done["complete"] == true {
			break
		}
	}
	answer, _ := json.Marshal(done) // it was JSON
	return c.show(s, answer)
}

// send asks the admin port.
func (c *verbCommand) send(ctx context.Context) (answer json.RawMessage, err error) {
	args, path, body := c.row.Write(c.Ask)
	if c.path = path; body != nil {
		if body, err = asJSON(body); err != nil {
			return nil, err
		}
	}
	if _, err = c.row.Read(args, func(_, name string) string { return path[name] }, body); err != nil {
		return nil, misuse("%w", err)
	}
	call := c.namespace(c.Of.(*inNamespace).Namespace).at(c.route())
	if call.err != nil {
		return nil, call.err
	}
	if c.row.Method() == http.MethodPost && body == nil {
		body, _ = json.Marshal(args) // texts
	} else {
		for name, text := range args {
			call.set(name, text)
		}
	}
	if u, ok := c.More.(*unmasked); ok {
		call.on("unmasked", u.Unmasked)
	}
	header, timeout := http.Header{"Content-Type": {"application/json"}}, call.timeout
	for _, f := range c.row.Fields {
		if f.In == "header" {
			header.Set(f.Name, path[f.Name])
		}
	}
	if c.row.Acts() {
		timeout = max(timeout, actTimeout)
	}
	return call.exchange(ctx, c.row.Method(), call.target(), body, header, timeout, new(any))
}

// route is the path of the row with its names.
func (c *verbCommand) route() string {
	return os.Expand(strings.ReplaceAll(c.row.Path(), "{", "${"), func(name string) string { return c.path[name] })
}

// show prints an answer as its row says.
func (c *verbCommand) show(s Streams, answer json.RawMessage) error {
	list, text, isList := strings.Cut(c.row.Text, " -> ")
	columns := strings.Split(cmp.Or(text, list), "|")
	said := gjson.ParseBytes(answer)
	switch {
	case c.Output == "json":
		return printJSON(s.Out, answer)
	case isList:
		return c.showList(s, list, columns, said)
	case len(columns) > 1:
		var lines []string
		for _, line := range columns {
			name, text, _ := strings.Cut(line, " ")
			if text = c.fill(text, said, "", "  "); text != "" {
				lines = append(lines, name, text)
			}
		}
		return details(lines...).print(s.Out)
	}
	_, err := fmt.Fprintln(s.Out, c.fill(list, said, "-", "\n"))
	return err
}

// showList prints a table, whose columns begin with their titles.
func (c *verbCommand) showList(s Streams, key string, columns []string, answer gjson.Result) error {
	list, next := answer.Get(key).Array(), answer.Get("next").String()
	if len(list) == 0 && next == "" {
		return s.tell("%s", cmp.Or(c.fill(c.row.None, answer, "", ""), "no "+key))
	}
	t := newTable()
	for _, column := range columns {
		title, _, _ := strings.Cut(column, " $")
		t.titles = append(t.titles, title)
	}
	for _, item := range list {
		var cells []string
		for _, column := range columns {
			_, text, _ := strings.Cut(column, " $")
			cells = append(cells, c.fill("$"+text, item, "-", " "))
		}
		t.add(cells...)
	}
	if err := t.print(s.Out); err != nil || next == "" {
		return err
	}
	return s.tell("for more: --after %s", escape(next))
}

// fill puts parts of the answer into a text, and names of the path. A list has its parts apart.
func (c *verbCommand) fill(text string, answer gjson.Result, missing, apart string) string {
	return os.Expand(text, func(name string) string {
		missing := missing
		name, other, or := strings.Cut(name, " or ")
		name, noun, counts := strings.Cut(name, " ")
		value := answer.Get(name)
		said := value.String()
		if or {
			missing = other
		}
		switch {
		case derived[name] != nil:
			said = derived[name](answer)
		case or && value.Raw == "0":
			said = ""
		case !value.Exists() && c.path[name] != "":
			said = c.path[name]
		case counts:
			said = human.Some(value.Int(), noun, noun+"s")
		case strings.HasSuffix(name, "_ms"):
			said = clock(value.Int())
		case value.IsArray():
			var parts []string
			for _, part := range value.Array() {
				parts = append(parts, escape(part.String()))
			}
			return strings.Join(parts, apart)
		}
		return cmp.Or(escape(said), missing)
	})
}
