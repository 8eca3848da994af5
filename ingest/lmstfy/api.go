package lmstfy

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// DefaultPool is the pool of requests that name none.
const DefaultPool = "default"

// Queues runs the operations on jobs. An error of a method is one of package job or of a
// class of package partition.
type Queues interface {
	// Namespace returns a namespace of queues and the name of its pool; nil: there is none.
	Namespace(name string) (ns *job.Namespace, pool string)
	HasPool(name string) bool

	Publish(ctx context.Context, p *job.Publish) error // chooses the shard
	Ack(ctx context.Context, a *job.Ack) error
	// Claim ends with ErrRevoked when the token is revoked while it waits. When the client
	// went away, or the server stops, it returns nothing.
	Claim(c *Claim) ([]job.Job, error)
	Requeue(ctx context.Context, ns *job.Namespace, jobs []job.Job) // undoes a claim
	Peek(ctx context.Context, ns *job.Namespace, queue string) (job.Job, error)
	Get(ctx context.Context, ns *job.Namespace, queue string, ref job.Ref) (job.Job, job.State, error)
	Counts(ctx context.Context, ns *job.Namespace, queue string) (job.Counts, error)
	Dead(ctx context.Context, ns *job.Namespace, queue string, offset, limit int) (jobs []job.Job, total int64, err error)
	Respawn(ctx context.Context, ns *job.Namespace, queue string, limit int, ttl time.Duration) (int, error)
	DeleteDead(ctx context.Context, ns *job.Namespace, queue string, limit int) (int, error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (int64, error)
}

// Claim asks for jobs of queues, the most wanted first, and waits for them.
type Claim struct {
	// Exchange is the request: a wait ends when its client went away, and when the server
	// stops, and when Key is revoked.
	Exchange *ingest.Exchange
	Key      *ingest.Key // nil: the namespace needs no token

	Namespace *job.Namespace
	Queues    []string // each once
	TTR       time.Duration
	Count     int
	Wait      time.Duration
}

// Limits are the limits of a token, shared by all processes. One that is nil does not
// exist.
type Limits struct {
	Write, Read      Limiter // of requests
	Produce, Consume Limiter // of jobs
}

// Limiter is a rate.
type Limiter interface {
	// Take takes n; a wait other than 0 says that the rate does not allow it now. Else
	// refund gives some of it back.
	Take(ctx context.Context, n int64) (refund func(n int64), wait time.Duration, err error)
}

// Config is what an API is made of.
type Config struct {
	Queues Queues
	// Limits returns the limits of a token; nil: no token has any.
	Limits    func(namespace string, hash [sha256.Size]byte) Limits
	Metrics   *Metrics // nil: none are kept
	AccessLog *AccessLog
	Log       *zap.Logger
}

// API answers the requests below /api/.
type API struct{ Config }

// NewAPI makes an API.
func NewAPI(cfg Config) *API { return &API{cfg} }

// Mount puts the API on the data port.
func (a *API) Mount() ingest.Mount {
	return ingest.Mount{Name: "lmstfy", Prefix: Prefix, AnyPath: true, MaxBody: MaxBody, Handler: a.serve, Failure: failure}
}

// call is one request.
type call struct {
	*API
	*ingest.Exchange
	route *route // nil: none matches
	target
	namespace *job.Namespace
	pool      string      // that the request names, or the namespace's
	key       *ingest.Key // nil: the namespace needs no token
	limits    Limits
	token     string
}

// serve answers one request.
func (a *API) serve(x *ingest.Exchange) *ingest.Rejection {
	began := time.Now()
	c := &call{API: a, Exchange: x}
	x.Ctx.Response.Header.Set(headerRequestID, ulid.Make().String())
	refused := c.answer()
	status := x.Ctx.Response.StatusCode()
	if refused != nil {
		status = refused.status
	}
	a.Metrics.request(c, status, time.Since(began))
	a.AccessLog.write(a.Log, x.Ctx, status, time.Since(began))
	return refused.send(x)
}

// answer runs the checks in the order of lmstfy: route, names, token, limit, and what the
// route itself checks.
func (c *call) answer() *refusal {
	if !c.match() {
		return refuse(wire.CodeNoSuchRoute, fasthttp.StatusNotFound, "api not found")
	}
	if refused := c.checkNames(); refused != nil {
		return refused
	}
	if refused := c.authenticate(); refused != nil {
		return refused
	}
	refund, refused := c.takeRequest()
	if refused != nil {
		return refused
	}
	refused = c.route.serve(c)
	if status := c.Ctx.Response.StatusCode(); refused != nil || status != fasthttp.StatusOK && status != fasthttp.StatusCreated {
		refund(1)
	}
	return refused
}
