package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/php"
	"github.com/spillway-io/spillway/partition/schedule"
)

// route is one row of the table: what a method does at a path below /v1/{namespace}.
type route struct {
	name   string // in metrics
	method string
	tail   string // what follows the queue; {job} is a job's, {schedule} a schedule's
	params []string
	serve  func(*api, *call) *ingest.Rejection
}

var routes = []route{
	{"publish", "POST", "", []string{"delay", "at", "ttl", "tries", "id", "shards", "dedup", "unique", "unique_key", "on_conflict", "on_end",
		"prepare", "check", "check_after", "checks", "moved", "attribute."}, limited(writes, (*api).publish)},
	{"counts", "GET", "", nil, (*api).counts},
	{"purge", "DELETE", "", []string{"state"}, (*api).purge},
	{"claim", "POST", "claim", []string{"count", "ttr", "wait", "on_end", "text"}, limited(reads, (*api).claim)},
	{"take", "POST", "take", []string{"count", "ttr", "wait", "on_end", "text"}, limited(reads, (*api).claim)},
	{"settle", "POST", "settle", nil, (*api).settle},
	{"peek", "GET", "peek", []string{"text"}, (*api).peek},
	{"dead", "POST", "dead", []string{"do", "limit", "ttl", "reason", "error", "age", "after"}, (*api).dead},
	{"list_dead", "GET", "dead", []string{"limit", "offset"}, (*api).listDead},
	{"list_jobs", "GET", "jobs", []string{"state", "limit", "after", "data"}, (*api).list},
	{"job", "GET", "jobs/{job}", []string{"wait", "text"}, (*api).get},
	{"reschedule", "PATCH", "jobs/{job}", nil, limited(writes, (*api).reschedule)},
	{"delete_job", "DELETE", "jobs/{job}", nil, (*api).delete},
	{"trace", "GET", "jobs/{job}/trace", nil, (*api).trace},
	{"release_unique", "DELETE", "unique", []string{"id", "unique_key"}, (*api).releaseUnique},
}

// ownersTail stands for /v1/{namespace}/_owners.
const ownersTail = "_owners"

// ofNoQueue reports whether a path is one in the place of a queue that is none.
func ofNoQueue(path string) bool {
	return path == "_times" || path == "_schedules" || path == ownersTail
}

func init() {
	for _, row := range verb.Rows {
		if row.Admin {
			continue
		}
		tail, ofQueue := strings.CutPrefix(row.DataPath(), "/{queue}/")
		if !ofQueue {
			tail = tail[1:]
		}
		serve := cold(row)
		if row.Publishes {
			serve = limited(writes, serve)
		}
		routes = append(routes, route{row.Name, row.Method(), tail, row.Params(), serve})
	}
}

// cold serves a verb of the table.
func cold(row *verb.Row) func(*api, *call) *ingest.Rejection {
	return func(a *api, c *call) (rejected *ingest.Rejection) {
		var body []byte
		if row.HasBody() {
			if body, rejected = c.Body(); rejected != nil {
				return rejected
			}
		}
		ask, err := row.Read(c.args, c.at, body)
		if err != nil {
			return Reject(err)
		}
		produce := c.key.Limiters().Produce
		of := &verb.Call{
			Namespace: c.namespace,
			Store:     a.store,
			Limits:    schedule.Limits{Entry: a.cfg.MaxEntry, Entries: a.cfg.MaxEntries, Body: a.cfg.MaxBody},
			By:        c.key.Name(),
			Token:     c.key.Name(),
			Affords:   produce.Allows,
			Spend: func(jobs int) error {
				if _, rejected := c.take(produce, jobs); rejected != nil {
					return rejected
				}
				return nil
			},
			Paced: func(_ context.Context, read func() error) error { return read() },
			Mask:  func(payload json.RawMessage) json.RawMessage { return payload },
		}
		created := false
		run := a.reading
		if row.Free {
			run = a.alone
		}
		rejected = run(c, row.Acts(), func(ctx context.Context) (any, error) {
			answer, err := row.Do(ctx, of, ask)
			put, makes := answer.(interface{ Created() bool })
			created = makes && put.Created()
			return answer, err
		})
		if rejected == nil && created {
			c.Ctx.SetStatusCode(201)
		}
		return rejected
	}
}

// at is a name in the path or a header.
func (c *call) at(in, name string) string {
	if in == "header" {
		return string(c.Ctx.Request.Header.Peek(name))
	}
	return map[string]string{"queue": c.queue(), "schedule": c.schedule, "owner": c.owner, "job": c.id}[name]
}

// api is the native routes over an engine.
type api struct{ *Engine }

// call is a request on a route.
type call struct {
	*ingest.Exchange
	route     *route
	namespace *job.Namespace
	queues    []string // one, but of a claim
	id        string   // of a job
	schedule  string
	owner     string
	key       *ingest.Key
	nothing   bool // the answer has no job
	query
}

func (c *call) queue() string { return c.queues[0] }

// Mount gives the native routes of the store's namespaces to an ingest.Server.
func (e *Engine) Mount() ingest.Mount {
	a := &api{Engine: e}
	return ingest.Mount{
		Name:    "jobs",
		Owns:    func(namespace string) bool { return e.store.Namespace(namespace) != nil },
		Handler: a.serve,
	}
}

// serve finds the route, admits the request, and lets the route serve it.
func (a *api) serve(x *ingest.Exchange) *ingest.Rejection {
	c := &call{Exchange: x}
	namespace, rejected := c.match()
	if rejected != nil {
		return rejected
	}
	if c.route == nil { // OPTIONS
		return nil
	}
	x.SetRoute(c.route.name)
	if c.key, rejected = x.Authenticate(namespace, x.Bearer()); rejected != nil {
		return rejected
	}
	if c.namespace = a.store.Namespace(namespace); c.namespace == nil {
		return ingest.Reject(wire.CodeNoSuchNamespace, "") // it was deleted since
	}
	params := c.route.params
	if c.namespace.PHP {
		if params, rejected = c.ofPHP(); rejected != nil {
			return rejected
		}
	}
	if rejected := c.parse(x.Ctx.QueryArgs(), params); rejected != nil {
		return rejected
	}
	return c.route.serve(a, c)
}

func writes(l control.Limiters) *control.Limiter { return l.Write }
func reads(l control.Limiters) *control.Limiter  { return l.Read }

// limited lets a route count requests against a limit that lmstfy's admin API gave the token.
// As there, only those that stored or brought jobs count.
func limited(by func(control.Limiters) *control.Limiter,
	serve func(*api, *call) *ingest.Rejection) func(*api, *call) *ingest.Rejection {
	return func(a *api, c *call) *ingest.Rejection {
		taken, rejected := c.take(by(c.key.Limiters()), 1)
		if rejected != nil {
			return rejected
		}
		if rejected = serve(a, c); rejected != nil || c.nothing {
			taken.Refund()
		}
		return rejected
	}
}

// take takes n of a rate of the token, or rejects. What ends a job or a lease needs none:
// a client that may not ack a job would get it again.
func (c *call) take(l *control.Limiter, n int) (control.Taken, *ingest.Rejection) {
	ctx, cancel := context.WithTimeout(context.Background(), takeTimeout)
	defer cancel()
	return c.key.Take(ctx, l, n)
}

// takeTimeout is how long the store may take to count what tokens use of their rates.
const takeTimeout = time.Second

// match finds the route by method and path. It answers OPTIONS itself.
func (c *call) match() (namespace string, rejected *ingest.Rejection) {
	first, rest, _ := bytes.Cut(c.Path(), []byte{'/'})
	queues, tail, below := bytes.Cut(rest, []byte{'/'})
	job, isJob := bytes.CutPrefix(tail, []byte("jobs/"))
	schedule, isSchedule := bytes.CutPrefix(tail, []byte("schedules/"))
	pattern := unsafe.String(unsafe.SliceData(tail), len(tail))
	switch {
	case isJob && len(job) > 0:
		job, pattern = cutVerb(job, "jobs/{job}")
	case isSchedule && len(schedule) > 0:
		schedule, pattern = cutVerb(schedule, "schedules/{schedule}")
	case !below && ofNoQueue(unsafe.String(unsafe.SliceData(queues), len(queues))):
		pattern = string(queues)
	case below && string(queues) == ownersTail:
		owner, of := cutVerb(tail, ownersTail+"/{owner}")
		c.owner, pattern = string(owner), of
	}
	method := string(c.Ctx.Method())
	var allowed []string
	for i := range routes {
		r := &routes[i]
		if r.tail != pattern || below && (len(tail) == 0 || ofNoQueue(pattern)) {
			continue
		}
		allowed = append(allowed, r.method)
		if r.method == method || r.method == "GET" && method == "HEAD" {
			c.route = r
		}
		if r.method == "GET" {
			allowed = append(allowed, "HEAD")
		}
	}
	switch {
	case len(rest) == 0:
		return "", ingest.Reject(wire.CodeNoSuchRoute,
			"the name of a queue is missing: /v1/"+string(first)+"/{queue}")
	case len(allowed) == 0:
		return "", ingest.Reject(wire.CodeNoSuchRoute, "")
	case method == "OPTIONS":
		return "", c.Preflight(strings.Join(append(allowed, "OPTIONS"), ", "))
	case c.route == nil:
		return "", ingest.RejectMethod(strings.Join(append(allowed, "OPTIONS"), ", "))
	}
	c.schedule = string(schedule)
	return string(first), c.names(string(queues), string(job))
}

// cutVerb cuts what follows a name off, and adds it to the pattern of the path.
func cutVerb(path []byte, pattern string) (name []byte, whole string) {
	name, verb, acts := bytes.Cut(path, []byte{'/'})
	if acts {
		pattern += "/" + string(verb)
	}
	return name, pattern
}

// names checks what the path names.
func (c *call) names(queues, id string) *ingest.Rejection {
	c.id, c.queues = id, []string{queues}
	switch {
	case ofNoQueue(c.route.tail):
		return nil
	case strings.HasPrefix(c.route.tail, ownersTail):
		if !partition.ValidScheduleName(c.owner) {
			return ingest.Reject(wire.CodeBadName, "")
		}
		return nil
	case strings.HasPrefix(c.route.tail, "schedules/") && !partition.ValidScheduleName(c.schedule):
		return ingest.Reject(wire.CodeBadName, "")
	}
	if c.route.tail == "claim" || c.route.tail == "take" {
		var rejected *ingest.Rejection
		if c.queues, rejected = wanted(queues); rejected != nil {
			return rejected
		}
	}
	if len(c.queues) > job.MaxQueues {
		return ingest.Reject(wire.CodeBadQueue,
			fmt.Sprintf("a request names at most %d queues", job.MaxQueues))
	}
	for _, queue := range c.queues {
		if !partition.ValidOwnName(queue) {
			return ingest.Reject(wire.CodeBadQueue, "")
		}
	}
	return nil
}

// maxWeight bounds the weight of a queue in a claim.
const maxWeight = 1000

// wanted reads the queues of a claim, the most wanted first. With weights, as in urgent*5,welcome,
// their order is drawn anew for each claim: each comes next by its share of the weights of those that
// are left.
func wanted(text string) (queues []string, rejected *ingest.Rejection) {
	weights, sum := []int{}, 0
	for item := range strings.SplitSeq(text, ",") {
		queue, digits, weighted := strings.Cut(item, "*")
		weight := 1
		if weighted {
			n, err := strconv.Atoi(digits)
			if err != nil || n < 1 || n > maxWeight || digits[0] == '+' {
				return nil, ingest.Reject(wire.CodeBadQueue, "the weight of a queue is a number from 1 to 1000, such as urgent*5")
			}
			weight = n
		}
		if !slices.Contains(queues, queue) {
			queues, weights, sum = append(queues, queue), append(weights, weight), sum+weight
		}
	}
	if !strings.Contains(text, "*") {
		return queues, nil
	}
	for i := range queues {
		at, left := i, rand.IntN(sum) // #nosec G404 -- spreads claims
		for left >= weights[at] {
			left -= weights[at]
			at++
		}
		sum -= weights[at]
		queues[i], queues[at] = queues[at], queues[i]
		weights[i], weights[at] = weights[at], weights[i]
	}
	return queues, nil
}

// storeFailures says how errors are answered, the most specific first. Every other error
// counts as an unknown outcome, which is never wrong.
var storeFailures = []struct {
	is   error
	code wire.Code
}{
	{job.ErrNoJob, wire.CodeNoSuchJob},
	{job.ErrBadAfter, wire.CodeBadAfter},
	{job.ErrNoQueue, wire.CodeNoSuchQueue},
	{job.ErrForeignType, wire.CodeForeignType},
	{job.ErrOtherKind, wire.CodeNoSuchRoute},
	{job.ErrNoTrace, wire.CodeNoSuchTrace},
	{job.ErrNotDelayed, wire.CodeNotDelayed},
	{job.ErrPrepared, wire.CodePrepared},
	{job.ErrNotPrepared, wire.CodeNotPrepared},
	{job.ErrDecided, wire.CodeAlreadyDecided},
	{job.ErrTooManyJobs, wire.CodeTooManyJobs},
	{job.ErrTooManyQueues, wire.CodeTooManyQueues},
	{job.ErrTooManyKeys, wire.CodeTooManyKeys},
	{job.ErrNoSchedule, wire.CodeNoSuchSchedule},
	{job.ErrTooManySchedules, wire.CodeTooManySchedules},
	{job.ErrNoOwner, wire.CodeNoSuchOwner},
	{job.ErrOtherOwner, wire.CodeOtherOwner},
	{job.ErrOldVersion, wire.CodeOldVersion},
	{job.ErrUnfinished, wire.CodeRunUnfinished},
	{job.ErrEnded, wire.CodeScheduleEnded},
	{schedule.ErrRevision, wire.CodeRevisionMismatch},
	{job.ErrBadArgument, wire.CodeInternal},
	{ErrOverloaded, wire.CodeOverloaded},
	{ErrStopping, wire.CodeShuttingDown},
	{ErrHungUp, wire.CodeHungUp},
	{ErrRevoked, wire.CodeUnauthorized},
	{ErrNoNamespace, wire.CodeNoSuchNamespace},
	{partition.ErrFull, wire.CodeStoreFull},
	{partition.ErrUnavailable, wire.CodeStoreUnavailable},
	{partition.ErrBroken, wire.CodeStoreUnavailable},
}

// Reject says how an error of an Engine or of its store is answered.
func Reject(err error) *ingest.Rejection {
	var rejected *ingest.Rejection
	if errors.As(err, &rejected) {
		return rejected
	}
	var payload *php.PayloadError
	if errors.As(err, &payload) {
		return ingest.Reject(wire.CodeBadJob, payload.Error())
	}
	var field *schedule.FieldError
	if errors.As(err, &field) {
		return ingest.Reject(wire.CodeBadSchedule, err.Error()).Of(field.Field, field.Value)
	}
	if errors.Is(err, schedule.ErrTooLarge) {
		return ingest.Reject(wire.CodeEntryTooLarge, err.Error())
	}
	for _, f := range storeFailures {
		if errors.Is(err, f.is) {
			var of *schedule.RegisterError
			if errors.As(err, &of) && !errors.Is(err, partition.ErrBroken) {
				return ingest.Reject(f.code, of.Error())
			}
			return ingest.Reject(f.code, "")
		}
	}
	message := "the store did not confirm: it may have done what was asked"
	if errors.Is(err, partition.ErrUnconfirmed) {
		message = "stored, but fewer replicas than --durability asks for confirmed it in time: the jobs may not last"
	}
	return ingest.RejectUnknown(message)
}

// reject is Reject, and logs what is a bug, or damage.
func (a *api) reject(c *call, err error) *ingest.Rejection {
	if errors.Is(err, job.ErrBadArgument) || errors.Is(err, partition.ErrBroken) &&
		!errors.Is(err, job.ErrForeignType) {
		a.log.Error("store rejects request", zap.String("route", c.route.name),
			zap.String("namespace", c.namespace.Name),
			zap.Strings("queues", c.queues), zap.Error(err))
	}
	return Reject(err)
}
