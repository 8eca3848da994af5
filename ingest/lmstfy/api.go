// Package lmstfy is the HTTP API of lmstfy over Spillway's queues, so that programs
// written for lmstfy work without a change. API answers the requests of the data port,
// below /api/. Admin answers those of the admin port: tokens, limits, pools. DESIGN.md
// tells what is different on purpose.
package lmstfy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// DefaultPool is the pool of requests that name none.
const DefaultPool = "default"

// Config is what an API is made of.
type Config struct {
	Pools     Pools
	Metrics   *Metrics // nil: none are kept
	AccessLog *AccessLog
	Log       *zap.Logger
}

// API answers the requests below /api/.
type API struct {
	Config
	sizes sizes
}

// NewAPI makes an API.
func NewAPI(cfg Config) *API { return &API{Config: cfg} }

// Mount puts the API on the data port.
func (a *API) Mount() ingest.Mount {
	return ingest.Mount{
		Name:    "lmstfy",
		Prefix:  Prefix,
		AnyPath: true,
		MaxBody: MaxBody,
		Handler: a.serve,
		Failure: failure,
	}
}

// call is one request.
type call struct {
	*API
	*ingest.Exchange
	route *route // nil: none matches
	target
	namespace *job.Namespace
	*Pool                 // of the namespace; nil: there is none
	pool      string      // that the request names, or the namespace's
	key       *ingest.Key // nil: the namespace needs no token
	token     string
	anonymous bool // the route needs no token, and there is no valid one
}

// serve answers one request.
func (a *API) serve(x *ingest.Exchange) *ingest.Rejection {
	began := time.Now()
	c := &call{API: a, Exchange: x}
	x.Ctx.Response.Header.Set(headerRequestID, ulid.Make().String())
	rejected := c.answer()
	status := x.Ctx.Response.StatusCode()
	if rejected != nil {
		status = rejected.status
	}
	a.Metrics.request(c, status, time.Since(began))
	a.AccessLog.write(a.Log, x.Ctx, status, time.Since(began))
	return rejected.send(x)
}

// answer runs the checks in the order of lmstfy: route, names, token, limit, and what the
// route itself checks.
func (c *call) answer() *rejection {
	if !c.match() {
		return reject(wire.CodeNoSuchRoute, fasthttp.StatusNotFound, "api not found")
	}
	if rejected := c.checkNames(); rejected != nil {
		return rejected
	}
	if rejected := c.authenticate(); rejected != nil {
		return rejected
	}
	taken, rejected := c.takeRequest()
	if rejected != nil {
		return rejected
	}
	rejected = c.route.serve(c)
	if status := c.Ctx.Response.StatusCode(); rejected != nil || status != fasthttp.StatusOK &&
		status != fasthttp.StatusCreated {
		taken.Refund()
	}
	return rejected
}

// AccessLog switches the log of requests on and off. The zero value is off.
type AccessLog struct{ on atomic.Bool }

// write logs a request. Its query is left out: it may hold a token.
func (l *AccessLog) write(log *zap.Logger, ctx *fasthttp.RequestCtx, status int,
	took time.Duration) {
	if !l.on.Load() {
		return
	}
	log.Info("request", zap.ByteString("method", ctx.Method()), zap.ByteString("path", ctx.Path()),
		zap.Int("status", status),
		zap.Duration("took", took), zap.Stringer("client", ctx.RemoteAddr()),
		zap.ByteString("request_id", ctx.Response.Header.Peek(headerRequestID)))
}

// A Pool is one Redis with queues.
type Pool struct {
	Name   string
	Engine Engine
	Store  Store
}

// Store is what is asked of the store of a pool beside its Engine.
type Store interface {
	job.Reads
	Namespace(name string) *job.Namespace
	ActOnDead(ctx context.Context, a *job.DeadAct) (done int, err error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (deleted int64, err error)
}

// Engine is what runs in shared calls; *jobs.Engine is one. An error is in what was given.
type Engine interface {
	Publish(publishes ...*job.Publish)
	Ack(acks ...*job.Ack)
	Claim(c *jobs.Claim) ([]job.Job, error)
	GiveBack(ns *job.Namespace, claimed []job.Job)
}

// Pools are those of one process, one at least. No two have a namespace of the same name.
type Pools []Pool

// Of is the pool of a namespace, nil where there is no such namespace.
func (p Pools) Of(namespace string) *Pool {
	for i := range p {
		if p[i].Store.Namespace(namespace) != nil {
			return &p[i]
		}
	}
	return nil
}
