package lmstfy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

const (
	jsonType        = "application/json; charset=utf-8"
	headerRequestID = "X-Request-ID"
)

// What a request waits for the store, beside a long poll: a call, and work on all jobs of a
// queue, which the store does at its own pace. lmstfy's clients give up after 600 s.
const (
	storeTimeout = 9 * time.Second
	workTimeout  = 5 * time.Minute
)

// rejection is an answer that is a text.
type rejection struct {
	status      int
	field, text string            // "error" or "msg"
	code        wire.Code         // that it is counted under; empty: it is none of the client's or server's failures
	rejected    *ingest.Rejection // by the server
}

// reject answers with an error, and counts it under a code.
func reject(code wire.Code, status int, text string) *rejection {
	return &rejection{status: status, field: "error", text: text, code: code}
}

func badRequest(text string) *rejection {
	return reject(wire.CodeBadRequest, fasthttp.StatusBadRequest, text)
}

// rejectedBody is the rejection of a body that the server could not read.
func rejectedBody(r *ingest.Rejection) *rejection {
	rejected := badRequest("failed to read body")
	switch r.Code {
	case wire.CodeBodyTooLarge:
		rejected = reject(r.Code, fasthttp.StatusRequestEntityTooLarge, "body too large")
	case wire.CodeOverloaded:
		rejected = reject(r.Code, fasthttp.StatusServiceUnavailable, r.Text())
	}
	rejected.rejected = r
	return rejected
}

// rejectionKey and requestIDKey are where failure finds what send left.
type rejectionKey struct{}
type requestIDKey struct{}

// send writes the answer, or leaves that to failure: then the server counts it, and reads or
// cuts off what is left of the body.
func (r *rejection) send(x *ingest.Exchange) *ingest.Rejection {
	switch {
	case r == nil:
		return nil
	case r.code == "":
		r.write(x)
		return nil
	}
	x.Ctx.SetUserValue(rejectionKey{}, r)
	x.Ctx.SetUserValue(requestIDKey{}, string(x.Ctx.Response.Header.Peek(headerRequestID)))
	if r.rejected != nil {
		return r.rejected
	}
	return ingest.Reject(r.code, r.text)
}

// failure answers what the handler or the server rejects.
func failure(x *ingest.Exchange, rejected *ingest.Rejection) {
	id, known := x.Ctx.UserValue(requestIDKey{}).(string)
	if !known {
		id = ulid.Make().String()
	}
	x.Ctx.Response.Header.Set(headerRequestID, id)
	r, known := x.Ctx.UserValue(rejectionKey{}).(*rejection)
	if !known {
		r = &rejection{status: x.Ctx.Response.StatusCode(), field: "error", text: rejected.Text()}
		if rejected.Code == wire.CodeBodyTooLarge {
			r.text = "body too large"
		}
	}
	r.write(x)
}

func (r *rejection) write(x *ingest.Exchange) {
	text, _ := json.Marshal(r.text)                                                // of a string it cannot fail
	_ = x.Answer(r.status, jsonType, fmt.Appendf(nil, `{"%s":%s}`, r.field, text)) // small ones need no memory
}

// notFound says that something is not there, which is no failure.
func notFound(field, text string) *rejection {
	return &rejection{status: fasthttp.StatusNotFound, field: field, text: text}
}

// send answers with a body that is not used afterwards.
func (c *call) send(status int, body []byte) *rejection {
	if rejected := c.Answer(status, jsonType, body); rejected != nil {
		return rejectedBody(rejected)
	}
	return nil
}

// reserve reserves memory for an answer before it is made.
func (c *call) reserve(n int) *rejection {
	if rejected := c.Reserve(n); rejected != nil {
		return rejectedBody(rejected)
	}
	return nil
}

// deadline bounds calls of the store.
func (c *call) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(share.As(context.Background(), c.namespaceName), storeTimeout)
}

// workDeadline bounds work on all jobs of a queue. It ends when the server stops.
func (c *call) workDeadline() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(share.As(context.Background(), c.namespaceName), workTimeout)
	go func() {
		select {
		case <-ctx.Done():
		case <-c.Stopping():
			cancel()
		}
	}()
	return ctx, cancel
}

// failed answers an error of the store. It never says that there is no job: a client
// would believe that the work is done.
func (c *call) failed(what string, err error) *rejection {
	if rejected := full(err); rejected != nil {
		return rejected
	}
	switch {
	case errors.Is(err, jobs.ErrRevoked), errors.Is(err, jobs.ErrNoNamespace):
		return reject(wire.CodeUnauthorized, fasthttp.StatusUnauthorized, "invalid token")
	case errors.Is(err, jobs.ErrHungUp): // nobody reads the answer
		return notFound("msg", "no job available")
	case errors.Is(err, partition.ErrTooManyReads), errors.Is(err, jobs.ErrOverloaded):
		return rejectedBody(ingest.Reject(wire.CodeOverloaded, ""))
	case errors.Is(err, jobs.ErrStopping):
		return reject(wire.CodeShuttingDown, fasthttp.StatusServiceUnavailable, "the server is shutting down")
	}
	c.Log.Debug("request of lmstfy's API failed", zap.String("request", what), zap.Error(err))
	return internalError()
}

func internalError() *rejection {
	return reject(wire.CodeStoreUnavailable, fasthttp.StatusInternalServerError, "internal error")
}
