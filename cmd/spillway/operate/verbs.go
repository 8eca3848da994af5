package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition/schedule"
)

// New returns the commands, with those of the table of verbs.
func New() (c Commands) {
	c.Plugins, c.Jobs.Plugins, c.Schedules.Plugins = Verbs(""), Verbs("jobs"), Verbs("schedules")
	c.Dead.Plugins, c.Workers.Plugins = Verbs("dead"), Verbs("workers")
	c.Rules.Plugins, c.Ns.Plugins, c.AdminToken.Plugins = Verbs("rules"), Verbs("ns"), Verbs("admin-token")
	return c
}

// Nouns has the commands of a noun in the table of verbs.
type Nouns struct{ kong.Plugins }

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

// Verbs are the commands of a noun in the table, or those of none.
func Verbs(noun string) kong.Plugins {
	var fields []reflect.StructField
	var commands []verbCommand
	for _, row := range slices.Concat(verb.Rows, admin.Rows(), verb.Controls) {
		of, name, two := strings.Cut(row.Command, " ")
		if !two {
			of, name = "", row.Command
		}
		if of != noun || name == "" {
			continue
		}
		fields = append(fields, reflect.StructField{
			Name: "Verb" + digits(len(fields)),
			Type: reflect.TypeFor[verbCommand](),
			Tag:  reflect.StructTag(`cmd:"" name:"` + name + `" help:` + strconv.Quote(row.Help)),
		})
		c := verbCommand{Of: &inNamespace{}, Ask: row.Ask(), row: row}
		if row.Root {
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

// inNamespace is of verbs of a namespace.
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
	said names // in the path, headers and parameters
}

// Run asks, and prints the answer.
func (c *verbCommand) Run(ctx context.Context, s Streams, k *kong.Context) error {
	for _, f := range k.Flags() {
		if bounds := f.Tag.Get("bounds"); f.Set && f.Target.IsZero() && bounds != "" && bounds[0] != '0' {
			return misuse("%s: want %s, or leave the flag out", f.Name, bounds)
		}
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

// counts is the first number in the text of a row, and what it is of.
var counts = regexp.MustCompile(`\$\{(\w+) ([^}]+)\}`)

// confirmed counts, asks, and does as many as were agreed to, unless the service says that there are no more.
func (c *verbCommand) confirmed(ctx context.Context, s Streams, more *agreement) error {
	a := c.Ask.(approved).Approved()
	only := a.DryRun
	a.DryRun = true
	found, err := c.send(ctx)
	if err != nil {
		return err
	}
	to, of := gjson.ParseBytes(found), []string{"", "jobs", "job"}
	if !to.Get("jobs").Exists() {
		of = counts.FindStringSubmatch(c.row.Text)
	}
	n := to.Get(of[1]).Int()
	whom, _, _ := strings.Cut(c.row.Text, ": ")
	whom = c.said.fill(whom, to, "", " ")
	_ = s.tell("%s: found %s", whom, some(n, of[2]))
	if n == 0 && c.row.None != "" {
		_ = s.tell("%s", c.said.fill(c.row.None, to, "0", " "))
	}
	if only || n == 0 && !c.row.JSON {
		return c.print(s, found, whom+": nothing was changed")
	}
	if n > 0 {
		if err := more.ask(ctx, s, n, c.row.Confirm); err != nil {
			return err
		}
	}
	done, left := map[string]any{}, n
	for {
		*a = verb.Approval{Confirm: left}
		answer, err := c.send(ctx)
		if err != nil && left < n {
			err = fmt.Errorf("after %s: %w", some(n-left, of[2]), err)
		}
		if err != nil {
			return err
		}
		_ = json.Unmarshal(answer, &done) // which exchange did before
		part := gjson.GetBytes(answer, of[1])
		left -= part.Int()
		if done[of[1]] = n - left; !part.Exists() {
			left = 0
		}
		if left <= 0 || part.Int() == 0 || done["complete"] == true || gjson.GetBytes(answer, "failed").Int() > 0 {
			break
		}
		_ = s.tell("%d of %d so far", n-left, n)
	}
	answer, _ := json.Marshal(done) // it was JSON
	if err := c.show(s, answer); err != nil {
		return err
	}
	switch failed := gjson.GetBytes(answer, "failed").Int(); {
	case failed > 0:
		return fmt.Errorf("%s failed and are kept: %s", some(failed, of[2]), escape(gjson.GetBytes(answer, "errors.0").String()))
	case left > 0:
		return s.tell("%d of those that were counted are left: they are in use, or gone, or time was short. Run it again to see", left)
	case done["complete"] == false && c.said["limit"] == "":
		return s.tell("more match now; they are still there")
	}
	return nil
}

// send asks the admin port.
func (c *verbCommand) send(ctx context.Context) (answer json.RawMessage, err error) {
	args, path, body := c.row.Write(c.Ask)
	if in, ok := c.Of.(*inNamespace); ok {
		path["namespace"] = in.Namespace
	}
	c.said = maps.Clone(path)
	maps.Copy(c.said, args)
	call := c.call(os.Expand(strings.ReplaceAll(c.row.URL(), "{", "${"), func(name string) string { return url.PathEscape(path[name]) }))
	if name, ok := c.said["namespace"]; ok {
		call.check(validNamespace(name))
	}
	if c.row.JSON {
		if of, ok := c.Ask.(interface{ Check() error }); ok && of.Check() != nil {
			call.check(misuse("%w", of.Check()))
		}
		if !c.row.Acts() {
			return call.get(ctx, new(any))
		}
		return call.post(ctx, c.Ask, new(any))
	}
	if body != nil {
		if body, err = asJSON(body); err != nil {
			return nil, err
		}
	}
	if _, err = c.row.Read(args, func(_, name string) string { return path[name] }, body); err != nil {
		return nil, misuse("%w", err)
	}
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

// show prints an answer as its row says.
func (c *verbCommand) show(s Streams, answer json.RawMessage) error {
	said := gjson.ParseBytes(answer)
	if replaced := said.Get("replaced"); replaced.Exists() && c.row.JSON {
		_ = s.tell("it replaced %s", escape(replaced.Raw))
	}
	if err := c.printed(s, answer, said); err != nil || c.Output == "json" {
		return err
	}
	for _, rule := range said.Get("rules").Array() {
		if why := rule.Get("unused").String(); why != "" {
			_ = s.tell("%s does not count: %s", escape(rule.Get("match").String()), escape(why))
		}
	}
	if said.Get("token").String() != "" && c.row.JSON {
		return s.tell("The client sends the token (Authorization: Bearer). It is not shown again.")
	}
	if text := c.said.fill(c.row.Said, said, "", " "); text != "" {
		return s.tell("%s", text)
	}
	return nil
}

func (c *verbCommand) printed(s Streams, answer json.RawMessage, said gjson.Result) error {
	if c.Output == "json" {
		return printJSON(s.Out, answer)
	}
	var list, text string
	isList := false
	for one := range strings.SplitSeq(c.row.Text, "\n") {
		if list, text, isList = strings.Cut(one, " -> "); isList && said.Get(list).Exists() {
			break
		}
	}
	if isList {
		return c.showList(s, list, text, said)
	}
	if strings.Contains(list, "|") {
		var lines []string
		for line := range strings.SplitSeq(list, "|") {
			name, text, _ := strings.Cut(line, " $")
			if text = c.said.fill("$"+text, said, "", "  "); text != "" {
				lines = append(lines, name, text)
			}
		}
		return details(lines...).print(s.Out)
	}
	_, err := fmt.Fprintln(s.Out, c.said.fill(list, said, "-", "\n"))
	return err
}

// showList prints a table.
func (c *verbCommand) showList(s Streams, key, columns string, answer gjson.Result) error {
	list, next := answer.Get(key).Array(), answer.Get("next").String()
	if len(list) == 0 && next == "" && (c.row.Said == "" || c.row.None != "") {
		return s.tell("%s", cmp.Or(c.said.fill(c.row.None, answer, "", ""), "no "+key))
	}
	if err := c.said.table(columns, list).print(s.Out); err != nil || next == "" {
		return err
	}
	return s.tell("for more: --after %s", escape(next))
}
