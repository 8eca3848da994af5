package ingest

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Errors of the lanes, beside the store's.
var (
	errOverloaded   = errors.New("waited too long for a flush")
	errShuttingDown = errors.New("shutting down")
)

// jobMessages are the messages of requests about jobs, where those of failures speak of
// entries.
var jobMessages = map[wire.Code]string{
	wire.CodeEmptyBody:      "the body is empty: send at least one job",
	wire.CodeEmptyBatch:     "the body holds no job: send at least one",
	wire.CodeNoSuchRoute:    "no such route of a queue: see /openapi.yaml",
	wire.CodeBodyTooLarge:   "the body is too large: send fewer jobs a request",
	wire.CodeTooManyEntries: "the request is about too many jobs: send fewer",
	wire.CodeEntryTooLarge:  "the job is too large",
	wire.CodeRateLimited:    "the token has used its rate of jobs or requests: send or claim fewer, ask less often, or raise the rate",
}

// storeFailures says how the error of a group is answered, the most specific error
// first. An error without a row counts as an unknown outcome, which is never wrong.
var storeFailures = []struct {
	is     error
	code   wire.Code
	reason wire.Reason
}{
	{errNewPartitions, wire.CodeTooManyPartitions, wire.ReasonTooManyPartitions},
	{partition.ErrTooManyPartitions, wire.CodeTooManyPartitions, wire.ReasonTooManyPartitions},
	{partition.ErrTooManyKeys, wire.CodeTooManyKeys, wire.ReasonTooManyKeys},
	{partition.ErrFull, wire.CodeStoreFull, wire.ReasonStoreFull},
	{partition.ErrUnavailable, wire.CodeStoreUnavailable, wire.ReasonStoreUnavailable},
	{partition.ErrBroken, wire.CodeStoreUnavailable, wire.ReasonStoreUnavailable},
	{errOverloaded, wire.CodeOverloaded, wire.ReasonStoreUnavailable},
	{errShuttingDown, wire.CodeShuttingDown, wire.ReasonStoreUnavailable},
}

// codesFor looks up a group's error. ReasonUnknown means that the entries may be
// stored.
func codesFor(err error) (wire.Code, wire.Reason) {
	for _, f := range storeFailures {
		if errors.Is(err, f.is) {
			return f.code, f.reason
		}
	}
	return wire.CodeStoreUnavailable, wire.ReasonUnknown
}

// rejection answers a whole request with an error code.
type rejection = wire.Rejection

func reject(code wire.Code) *rejection { return wire.Reject(code) }

// rejectf is reject with a message of its own. The arguments must be numbers or
// names of this package, never bytes of a client.
func rejectf(code wire.Code, format string, args ...any) *rejection {
	return wire.Rejectf(code, format, args...)
}

// rejectUnknown says that the entries may have been stored.
func rejectUnknown(why error) *rejection {
	message := "the store did not confirm: the entries may have been stored"
	if errors.Is(why, partition.ErrUnconfirmed) {
		message = "stored, but fewer replicas than --durability asks for confirmed it in time: the entries may not last"
	}
	return RejectUnknown(message)
}

// writeRejection sets the response.
func writeRejection(ctx *fasthttp.RequestCtx, r *rejection) {
	how, body := wire.Responses[r.Code], r.Failure
	body.Message = r.Text()
	switch r.Code {
	case wire.CodeTooManyPartitions, wire.CodeTooManyKeys, wire.CodeTooManyJobs, wire.CodeTooManyQueues:
		if body.Scope == "" {
			body.Scope = "namespace"
		}
	}
	ctx.Response.Reset()
	ctx.Response.SetStatusCode(how.Status)
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBody(body.Append(nil))
	switch {
	case r.RetryAfter > 0:
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(r.RetryAfter))
	case how.RetryAfter != "":
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, how.RetryAfter)
	}
	if how.Status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	}
	if r.Allow != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, r.Allow)
	}
	if r.Code == wire.CodeUnsupportedEncoding {
		ctx.Response.Header.Set(fasthttp.HeaderAcceptEncoding, "gzip, zstd")
	}
}

// rawRejection is a whole HTTP response, for a connection without a handler.
func rawRejection(code wire.Code, message string) []byte {
	how := wire.Responses[code]
	body := (&wire.Failure{Code: code, Message: message}).Append(nil)
	head := "HTTP/1.1 " + strconv.Itoa(how.Status) + " " + fasthttp.StatusMessage(how.Status) +
		"\r\nConnection: close"
	if how.RetryAfter != "" {
		head += "\r\nRetry-After: " + how.RetryAfter
	}
	head += "\r\nContent-Type: " + jsonType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}
