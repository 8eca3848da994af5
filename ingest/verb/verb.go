// Package verb is the table of cold verbs: what people and programs ask seldom, and may cost 50 µs
// more. A row of it is all that is said of a verb: where it is on both ports, who may do it, what it
// takes and answers, what does it, and what the command prints. The ports mount it (ingest/jobs and
// cmd/spillway/admin), the command line runs it (cmd/spillway/operate), and OpenAPI describes it.
//
// To add a verb, write the struct that it asks, the struct that it answers, and the function between
// them, and add a row to Rows. The fields of what it asks are parameters, by their names in snake
// case, and flags of the command. Their tags are those of kong (help, default, enum, required,
// placeholder), which the ports keep to as well, and
//
//	bounds:"1..1000"   of numbers and durations
//	header:"If-Match"  where it is no parameter
//
// A field that the route names is of its path. A json.RawMessage is the whole body. Every other field is
// in the query, on both ports; a POST of the admin port may have them in a JSON object as well.
package verb

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// A Row is a verb.
type Row struct {
	Name    string // of its operation in OpenAPI, in metrics and in the audit trail
	Role    string // that the admin port asks for; empty: it is of the data port alone
	Route   string // method and path below a namespace of the admin port; see DataPath
	Command string // such as schedules put; empty: none
	Help    string
	// Text is what the command prints: a sentence in which ${state} is a part of the answer or a name in
	// the path, and ${accepted job} a number of them. With bars it is a table of names and values; after
	// "schedules -> ", one that has a line for each of these. Of several such tables, each after a line
	// feed, it is the first whose list the answer has.
	Text      string
	Said      string // what the command says beside it
	None      string // what it says where a list is empty, or a count 0
	Confirm   string // what a person agrees to
	Admin     bool   // it is of the admin port alone
	Free      bool   // it takes nothing off the rate of a token
	Masked    bool   // the answer has payloads, whose fields the admin port masks
	Publishes bool   // it counts as a publish against the limits of lmstfy's tokens

	Root bool // its path on the admin port is below /api/v1, with what it names itself
	JSON bool // what it asks is the body of a POST, with the JSON keys of its struct

	Fields      []Field // of what it asks
	schedules   bool    // its Store is one of Schedules
	ask, answer reflect.Type
	do          func(context.Context, *Call, any) (any, error)
}

// New makes a row of a function, which has the types of what it asks and answers.
func New[Q, A any](name, role, route, command, help, text string, do func(context.Context, *Call, *Q) (A, error)) *Row {
	r := &Row{Name: name, Role: role, Route: route, Command: command, Help: help, Text: text}
	r.ask, r.answer = reflect.TypeFor[Q](), reflect.TypeFor[A]()
	for _, f := range reflect.VisibleFields(r.ask) {
		if !f.Anonymous {
			r.Fields = append(r.Fields, r.field(f))
		}
	}
	r.do = func(ctx context.Context, c *Call, ask any) (any, error) { return do(ctx, c, ask.(*Q)) }
	return r
}

// Confirms says what a person agrees to, and what there is to say where there is nothing to do.
func (r *Row) Confirms(what, none string) *Row {
	r.Confirm, r.None = what, none
	return r
}

func (r *Row) ofAdmin() *Row {
	r.Admin = true
	return r
}

func (r *Row) free() *Row {
	r.Free = true
	return r
}

// Masks is of rows whose answers have payloads.
func (r *Row) Masks() *Row {
	r.Masked = true
	return r
}

// Says is what the command says beside a list, and in place of an empty one.
func (r *Row) Says(beside, none string) *Row {
	r.Said, r.None = beside, none
	return r
}

// InJSON is of rows that ask for JSON, in a body.
func (r *Row) InJSON() *Row {
	r.JSON = true
	return r
}

// OfPort is of rows whose path is below /api/v1.
func (r *Row) OfPort() *Row {
	r.Root = true
	return r
}

func (r *Row) publishes() *Row {
	r.Publishes = true
	return r
}

// Rows are all verbs of the table.
var Rows = slices.Concat(jobRows, ofSchedules(scheduleRows), ofSchedules(ownerRows))

func ofSchedules(rows []*Row) []*Row {
	for _, r := range rows {
		r.schedules = true
	}
	return rows
}

// A Call is who asks, on which port.
type Call struct {
	Namespace *job.Namespace
	Store     Store
	Limits    schedule.Limits
	By        string                                // name of who asks
	Token     string                                // whose rate holds for what a schedule publishes; empty: none
	Affords   func(jobs int) bool                   // false: the token's rate never allows so many at once
	Spend     func(jobs int) error                  // takes jobs off the token's rate
	Mask      func(json.RawMessage) json.RawMessage // of payloads; they are gone, unless the row is Masked
	Control   *Control                              // of Controls, which have this alone
	schedules Schedules                             // the Store of a verb of schedules

	// Paced does what reads much, on the admin port in turn with others.
	Paced func(ctx context.Context, read func() error) error

	// Of rows of the admin port alone: counts, at an operator's pace, and acts on dead letters of a cause.
	Counts  func(ctx context.Context, queue string) (job.Counts, error)
	ByCause func(ctx context.Context, a *job.DeadAct, cause string) (int, error)
}

// Store is what verbs need of a store of queues of every kind.
type Store interface {
	NewLane() *job.Lane
	Run(ctx context.Context, l *job.Lane, b *job.Batch)
	ActOnDead(ctx context.Context, a *job.DeadAct) (done int, err error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (deleted int64, err error)
	Forecast(ctx context.Context, ns *job.Namespace, queue string, step time.Duration, n int) ([]int64, error)
	Now() (ms int64, ok bool)
}

// Schedules is what verbs of schedules need of one.
type Schedules interface {
	job.ScheduleOperations
	job.OwnerOperations
	Now() (ms int64, ok bool)
}

// Approval is of verbs that count first, how much they would do, and then do no more than that.
type Approval struct {
	DryRun  bool  `json:"dry_run,omitempty" help:"Count only, and change nothing."`
	Confirm int64 `json:"-" kong:"-" bounds:"1..9007199254740991" help:"No more than so many, as a dry run counted."`
}

// Approved is the approval of what embeds it.
func (a *Approval) Approved() *Approval { return a }

// Most is the lower one of a limit, 0 for none, and what was confirmed.
func (a *Approval) Most(limit int64) int64 {
	if a.Confirm > 0 && (limit == 0 || a.Confirm < limit) {
		return a.Confirm
	}
	return limit
}

// ErrMore is that of an act on more than was confirmed.
var ErrMore = errors.New("there are more by now than were confirmed: ask with dry_run again")

// allows is ErrMore where n are more than was confirmed.
func (a *Approval) allows(n int64) error {
	if a.Confirm > 0 && n > a.Confirm {
		return ErrMore
	}
	return nil
}

// Method of the route, on both ports.
func (r *Row) Method() string {
	method, _, _ := strings.Cut(r.Route, " ")
	return method
}

// Path of the route below a namespace of the admin port.
func (r *Row) Path() string { return r.Route[len(r.Method())+1:] }

// URL is the path on the admin port.
func (r *Row) URL() string {
	if r.Root {
		return "/api/v1" + r.Path()
	}
	return "/api/v1/namespaces/{namespace}" + r.Path()
}

// DataPath is that of the data port, where a queue stands alone, and what is of none begins with _.
func (r *Row) DataPath() string {
	path, ofQueue := strings.CutPrefix(r.Path(), "/queues")
	if !ofQueue {
		return "/_" + path[1:]
	}
	return path
}

// Acts reports whether the verb changes something.
func (r *Row) Acts() bool { return r.Method() != "GET" && r.Role != "viewer" }

// Ask is a new request.
func (r *Row) Ask() any { return reflect.New(r.ask).Interface() }

// Do does what was read.
func (r *Row) Do(ctx context.Context, c *Call, ask any) (any, error) {
	if !r.Masked {
		c.Mask = func(json.RawMessage) json.RawMessage { return nil }
	}
	if r.schedules {
		var err error
		if c.schedules, err = job.As[Schedules](c.Store); err != nil {
			return nil, err
		}
	}
	return r.do(ctx, c, ask)
}
