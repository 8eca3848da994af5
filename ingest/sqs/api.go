// Package sqs is the HTTP API of Amazon SQS over Spillway's queues, in both of its protocols, so
// that AWS's SDKs and what stands on them work without a change. DESIGN.md tells what a word of SQS
// is here.
package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

// Prefix begins the paths of queues. Requests also come to /.
const Prefix = "/sqs/"

// MaxBody is the largest body, in bytes: messages of 1 MiB, and what a form adds to them.
const MaxBody = 3 << 20

// Config is what an API is made of.
type Config struct {
	Engines    []*jobs.Engine // of the pools that may have queues
	AccessKeys map[string]Key // by their id
	// OpenNames lets the name of a namespace without tokens be its access key id, for trying
	// out; default false.
	OpenNames bool
	Control   Control
}

// Control keeps what clients say of queues; *control.Control is one.
type Control interface {
	Snapshot() *control.Snapshot
	ChangeRule(ctx context.Context, namespace, queue, by string,
		change func(*control.Rule) error) error
}

// API answers the requests of SQS's clients.
type API struct {
	Config

	mu      sync.Mutex
	changes map[string]*rate.Limiter // of rules, by namespace
}

// NewAPI makes an API.
func NewAPI(cfg Config) *API { return &API{Config: cfg, changes: map[string]*rate.Limiter{}} }

// How often clients of a namespace may change what is said of its queues: every process reads all rules anew then.
const (
	changesPerSecond = 1
	changesBurst     = 20
)

func (a *API) mayChange(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.changes[namespace]
	if limiter == nil {
		limiter = rate.NewLimiter(changesPerSecond, changesBurst)
		a.changes[namespace] = limiter
	}
	return limiter.Allow()
}

// Mount puts the API on the data port.
func (a *API) Mount() ingest.Mount {
	return ingest.Mount{
		Name:    "sqs",
		Prefix:  Prefix,
		Root:    true,
		MaxBody: MaxBody,
		Failure: answerFailure,
		Handler: func(x *ingest.Exchange) *ingest.Rejection {
			c := &call{API: a, Exchange: x}
			return c.serve().reject(x)
		},
	}
}

// call is one request.
type call struct {
	*API
	*ingest.Exchange
	credential
	request
	namespace string
	queue     string
	action    string
	isForm    bool
	body      []byte
	key       *ingest.Key // nil: the namespace needs no token
	of        jobs.Queue
}

// actions are what SQS's clients can ask for. An answer is what encodes to that of the JSON
// protocol; nil: it was given.
var actions = map[string]func(*call) (any, *failure){
	"CreateQueue":                  (*call).createQueue,
	"DeleteQueue":                  (*call).deleteQueue,
	"GetQueueUrl":                  (*call).getURL,
	"ListQueues":                   (*call).listQueues,
	"GetQueueAttributes":           (*call).getAttributes,
	"SetQueueAttributes":           (*call).setAttributes,
	"PurgeQueue":                   (*call).purge,
	"SendMessage":                  (*call).send,
	"SendMessageBatch":             (*call).send,
	"ReceiveMessage":               (*call).receive,
	"DeleteMessage":                (*call).settle,
	"DeleteMessageBatch":           (*call).settle,
	"ChangeMessageVisibility":      (*call).settle,
	"ChangeMessageVisibilityBatch": (*call).settle,
}

// serve answers a request.
func (c *call) serve() *failure {
	if failed := c.authenticate(); failed != nil {
		return failed
	}
	if failed := c.parse(); failed != nil {
		return failed
	}
	act, known := actions[c.action]
	if !known || !c.Ctx.IsPost() {
		return fail(unsupported, fmt.Sprintf("%.64q is none of the actions that ingest/API.md lists, or not sent by POST", c.action))
	}
	if failed := c.find(); failed != nil {
		return failed
	}
	answer, failed := act(c)
	if failed != nil || answer == nil {
		return failed
	}
	return failureOf(c.Answer(200, c.contentType(), c.encode(nil, answer)))
}

// find finds the queue of a request, by its QueueUrl, its QueueName or its path.
func (c *call) find() *failure {
	path := string(c.Path())
	if u, err := url.Parse(c.QueueUrl); c.QueueUrl != "" && err == nil {
		path = u.Path
	}
	namespace := c.namespace
	if c.queue = c.QueueName; c.queue == "" {
		if rest, found := strings.CutPrefix(path, Prefix); found {
			namespace, c.queue, _ = strings.Cut(rest, "/")
		}
	}
	switch {
	case namespace != c.namespace:
		return failureOf(ingest.Reject(wire.CodeForbidden,
			"the access key is of another namespace"))
	case strings.HasSuffix(c.queue, ".fifo"):
		return fail(unsupported, "there are no FIFO queues: leave .fifo out of the name")
	case c.action == "ListQueues":
		c.queue = "any"
	case c.queue == "":
		return fail(missing, "QueueUrl, which ends with /sqs/{namespace}/{queue}, or QueueName is missing")
	}
	if len(c.QueueOwnerAWSAccountId)+len(c.Tags) > 0 {
		return fail(unsupported, "queues have no account and no tags")
	}
	var rejected *ingest.Rejection
	if c.of, rejected = c.queueOf(c.queue); rejected != nil {
		return failureOf(rejected)
	}
	if c.action != "CreateQueue" && c.action != "DeleteQueue" && c.Control.Snapshot().Gone(namespace, c.queue) {
		return fail(noQueue, "a client deleted the queue: CreateQueue makes it again")
	}
	return nil
}

func (c *call) queueOf(name string) (jobs.Queue, *ingest.Rejection) {
	if e := c.engine(); e != nil {
		return e.Queue(c.Exchange, c.key, c.namespace, name)
	}
	return jobs.Queue{}, ingest.Reject(wire.CodeNoSuchNamespace, "") // it was deleted since
}

// engine is that of the namespace; nil: none has it.
func (c *call) engine() *jobs.Engine {
	for _, e := range c.Engines {
		if e.Has(c.namespace) {
			return e
		}
	}
	return nil
}

// url is that of a queue, at the address that the client used.
func (c *call) url(queue string) string {
	scheme := "http://"
	if c.Ctx.IsTLS() || string(c.Ctx.Request.Header.Peek("X-Forwarded-Proto")) == "https" {
		scheme = "https://"
	}
	return scheme + string(c.Ctx.Request.Header.Host()) + Prefix + c.namespace + "/" + queue
}

// getURL answers the URL of a queue. It exists by its name, unless a client deleted it.
func (c *call) getURL() (any, *failure) {
	return map[string]string{"QueueUrl": c.url(c.queue)}, nil
}

// createQueue keeps what the request says of a queue, where no client has said something else.
func (c *call) createQueue() (any, *failure) {
	if failed := c.changeRule(func(r *control.Rule) error {
		before := *r
		r.Gone = false
		if err := c.set(r); err != nil || !before.Says() {
			return err
		}
		if with(r) != with(&before) {
			return errExists
		}
		*r = before
		return nil
	}); failed != nil {
		return nil, failed
	}
	return c.getURL()
}

// deleteQueue deletes the jobs of a queue and what clients said of it. A repeat finishes what was begun.
func (c *call) deleteQueue() (any, *failure) {
	failed := c.changeRule(func(r *control.Rule) error {
		r.Clear()
		r.Gone = true
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	return c.purge()
}

const maxListed = 1000

// listQueues lists the first queues that have jobs, or of which clients have said something.
func (c *call) listQueues() (any, *failure) {
	names, rejected := c.of.Names()
	now := c.Control.Snapshot()
	for _, r := range now.Rules(c.namespace) {
		if r.Client {
			names = append(names, string(r.Match))
		}
	}
	slices.Sort(names)
	urls := []string{}
	for _, name := range slices.Compact(names) {
		if len(urls) == maxListed || !strings.HasPrefix(name, c.QueueNamePrefix) || now.Gone(c.namespace, name) {
			continue
		}
		if _, unusable := c.queueOf(name); unusable == nil {
			urls = append(urls, c.url(name))
		}
	}
	return map[string]any{"QueueUrls": urls}, failureOf(rejected)
}

func (c *call) purge() (any, *failure) { return struct{}{}, failureOf(c.of.Purge()) }

// standard is what holds for messages where no rule says another: that of SQS. Without a
// RedrivePolicy a message is received as often as a job can be.
var standard = jobs.Defaults{TTR: 30 * time.Second, Tries: maxReceives}

// defaults are those of the queue.
func (c *call) defaults() jobs.Defaults { return c.of.Defaults(standard) }

// with is what a client's rule says, where no other does.
func with(r *control.Rule) jobs.Defaults {
	return jobs.Defaults{TTR: cmp.Or(time.Duration(r.TTR), standard.TTR), Delay: time.Duration(r.Delay),
		Tries: cmp.Or(r.Tries, standard.Tries)}
}

const (
	maxReceives    = 65535
	maxTries       = 1000 // of a RedrivePolicy
	controlTimeout = 5 * time.Second
)

// redrive is the RedrivePolicy of a queue. Its dead letters stay with it, whatever it names.
type redrive struct {
	Target string      `json:"deadLetterTargetArn"`
	Tries  json.Number `json:"maxReceiveCount"`
}

// setAttributes keeps what a client says of a queue.
func (c *call) setAttributes() (any, *failure) { return struct{}{}, c.changeRule(c.set) }

// changeRule changes what clients say of exactly that queue.
func (c *call) changeRule(change func(*control.Rule) error) *failure {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	counted := false
	err := c.Control.ChangeRule(ctx, c.namespace, c.queue, cmp.Or(c.key.Name(), "sqs"), func(r *control.Rule) error { // again, where another was first
		before := *r
		if err := change(r); err != nil || *r == before {
			return err
		}
		if counted = counted || c.mayChange(c.namespace); !counted {
			return errTooOften
		}
		return nil
	})
	var field *partition.FieldError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errExists):
		return fail(nameExists, "clients have given the queue other attributes: change them by SetQueueAttributes")
	case errors.Is(err, errors.ErrUnsupported):
		return fail(unsupported,
			"of a queue only VisibilityTimeout, DelaySeconds and RedrivePolicy can be set")
	case errors.As(err, &field), errors.Is(err, errAttribute):
		return fail("InvalidAttributeValue",
			"VisibilityTimeout is 1 to 43200, DelaySeconds "+
				"0 to 900, and RedrivePolicy has a maxReceiveCount of 1 to 1000")
	case errors.Is(err, errTooOften):
		return failureOf(ingest.Reject(wire.CodeRateLimited, ""))
	case errors.Is(err, control.ErrTooMany):
		return fail("OverLimit", "the namespace has as many rules as clients may make")
	}
	return failureOf(ingest.Reject(wire.CodeStoreUnavailable, ""))
}

var (
	errExists    = errors.New("clients have said something else")
	errAttribute = errors.New("not the value of an attribute")
	errTooOften  = errors.New("the rules of the namespace change too often")
)

// set sets attributes in a rule, within AWS's bounds. Empty and 0 take back what was set.
func (c *call) set(r *control.Rule) error {
	for name, value := range c.Attributes.of {
		seconds, err := strconv.ParseUint(value, 10, 31)
		most := uint64(maxVisibility)
		switch span := control.Span(time.Duration(seconds) * time.Second); name { // #nosec G115 -- 31 bits
		case "VisibilityTimeout":
			r.TTR = span
		case "DelaySeconds":
			r.Delay, most = span, maxDelay
		case "RedrivePolicy":
			var policy redrive
			if err = nil; value != "" {
				err = json.Unmarshal([]byte(value), &policy)
				seconds, _ = strconv.ParseUint(policy.Tries.String(), 10, 16)
			}
			if r.Tries, most = int(seconds), maxTries; value != "" && seconds == 0 { // #nosec G115 -- 16 bits
				err = errAttribute
			}
		default:
			return errors.ErrUnsupported
		}
		if err != nil || seconds > most || name == "VisibilityTimeout" && seconds == 0 {
			return errAttribute
		}
	}
	return nil
}

// getAttributes answers what is known of a queue.
func (c *call) getAttributes() (any, *failure) {
	ready, delayed, leased, rejected := c.of.Counts()
	d := c.defaults()
	arn := "arn:aws:sqs:" + c.region + ":" + c.namespace + ":" + c.queue
	known := map[string]string{
		"ApproximateNumberOfMessages":           strconv.FormatInt(ready, 10),
		"ApproximateNumberOfMessagesDelayed":    strconv.FormatInt(delayed, 10),
		"ApproximateNumberOfMessagesNotVisible": strconv.FormatInt(leased, 10),
		"VisibilityTimeout":                     strconv.Itoa(int(d.TTR.Seconds())),
		"DelaySeconds":                          strconv.Itoa(int(d.Delay.Seconds())),
		"MaximumMessageSize":                    strconv.Itoa(c.of.MaxEntry()),
		"ReceiveMessageWaitTimeSeconds":         "0",
		"QueueArn":                              arn,
	}
	if d.Tries < maxReceives {
		policy, _ := json.Marshal(redrive{arn, json.Number(strconv.Itoa(d.Tries))})
		known["RedrivePolicy"] = string(policy)
	}
	return struct {
		Attributes map[string]string `json:",omitempty"`
	}{only(known, c.AttributeNames.of)}, failureOf(rejected)
}
