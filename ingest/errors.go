package ingest

import (
	"errors"
	"fmt"
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

// failure is how a code is answered.
type failure struct {
	status     int
	retryAfter string // seconds; empty sends no header
	message    string // for people, unless the rejection has its own
}

// failures is the one table of public codes.
var failures = map[wire.Code]failure{
	wire.CodeBadRequest:   {fasthttp.StatusBadRequest, "", "the request cannot be read as HTTP/1.1"},
	wire.CodeEmptyBody:    {fasthttp.StatusBadRequest, "", "the body is empty: send at least one entry"},
	wire.CodeEmptyBatch:   {fasthttp.StatusBadRequest, "", "the batch holds no entry: send at least one"},
	wire.CodeBadNDJSON:    {fasthttp.StatusBadRequest, "", "a line is not JSON"},
	wire.CodeBadJSON:      {fasthttp.StatusBadRequest, "", "the body is not valid JSON, or nests deeper than 512 levels"},
	wire.CodeBadPartition: {fasthttp.StatusBadRequest, "", "a partition's name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or digit"},
	wire.CodeBadNamespace: {fasthttp.StatusBadRequest, "", "a namespace's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit"},
	wire.CodeBadTime:      {fasthttp.StatusBadRequest, "", "times are Unix milliseconds in at most 13 digits"},
	wire.CodeBadHeader:    {fasthttp.StatusBadRequest, "", "a header is malformed"},
	wire.CodeBadEncoding:  {fasthttp.StatusBadRequest, "", "the body does not match its Content-Encoding: it is cut short, corrupt or followed by other bytes"},

	wire.CodeBadQueue: {fasthttp.StatusBadRequest, "",
		"a queue's name is 1 to 255 of A-Z a-z 0-9 . _ - and begins with a letter, digit or -"},
	wire.CodeBadParameter:  {fasthttp.StatusBadRequest, "", "the route has no such parameter, or it is given twice"},
	wire.CodeBadDelay:      {fasthttp.StatusBadRequest, "", "delay is a duration such as 5s"},
	wire.CodeBadTTL:        {fasthttp.StatusBadRequest, "", "ttl is a duration such as 24h, longer than delay; 0: for ever"},
	wire.CodeBadTries:      {fasthttp.StatusBadRequest, "", "tries is 1 to 65535"},
	wire.CodeBadID:         {fasthttp.StatusBadRequest, "", "id is 1 to 64 of A-Z a-z 0-9 _ -, of one job"},
	wire.CodeBadShards:     {fasthttp.StatusBadRequest, "", "shards is 1 to 1000, of one job"},
	wire.CodeBadDedup:      {fasthttp.StatusBadRequest, "", "dedup is a duration from 1s to 24h"},
	wire.CodeBadCount:      {fasthttp.StatusBadRequest, "", "count is 1 to 1000"},
	wire.CodeBadTTR:        {fasthttp.StatusBadRequest, "", "ttr is a duration such as 60s, up to 720h"},
	wire.CodeBadWait:       {fasthttp.StatusBadRequest, "", "wait is a duration from 0s to 10m"},
	wire.CodeBadState:      {fasthttp.StatusBadRequest, "", "state is ready or all"},
	wire.CodeBadStep:       {fasthttp.StatusBadRequest, "", "step is a duration from 1s to 720h"},
	wire.CodeBadSteps:      {fasthttp.StatusBadRequest, "", "steps is 1 to 1000"},
	wire.CodeBadDo:         {fasthttp.StatusBadRequest, "", "do is respawn or delete"},
	wire.CodeBadLimit:      {fasthttp.StatusBadRequest, "", "limit is 1 to 10000"},
	wire.CodeBadOffset:     {fasthttp.StatusBadRequest, "", "offset is 0 to 1000000000"},
	wire.CodeBadName:       {fasthttp.StatusBadRequest, "", "a schedule's name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter, digit or -"},
	wire.CodeBadAt:         {fasthttp.StatusBadRequest, "", "at is a time of RFC 3339 to come, without delay"},
	wire.CodeBadFrom:       {fasthttp.StatusBadRequest, "", "from is a time of RFC 3339, such as 2026-12-01T02:30:00Z"},
	wire.CodeBadTo:         {fasthttp.StatusBadRequest, "", "to is a time of RFC 3339 that is not before from"},
	wire.CodeBadForce:      {fasthttp.StatusBadRequest, "", "force is 1, or left out"},
	wire.CodeBadOnEnd:      {fasthttp.StatusBadRequest, "", "on_end is the name of a queue"},
	wire.CodeBadPrepare:    {fasthttp.StatusBadRequest, "", "prepare is 1, or left out"},
	wire.CodeBadCheck:      {fasthttp.StatusBadRequest, "", "check is the queue that is asked about prepared jobs"},
	wire.CodeBadCheckAfter: {fasthttp.StatusBadRequest, "", "check_after is a duration such as 60s"},
	wire.CodeBadChecks:     {fasthttp.StatusBadRequest, "", "checks is how often check is asked"},
	wire.CodeBadDelayMS:    {fasthttp.StatusBadRequest, "", "delay_ms is a whole number of milliseconds, 0 or more, without at"},
	wire.CodeBadData:       {fasthttp.StatusBadRequest, "", "data is a JSON value, or data_base64 bytes as base64: one of them"},
	wire.CodeBadVersion:    {fasthttp.StatusBadRequest, "", "version is a whole number from 1 that rises with each deploy"},
	wire.CodeBadSchedules:  {fasthttp.StatusBadRequest, "", "schedules is keep or delete"},
	wire.CodeBadSchedule:   {fasthttp.StatusBadRequest, "", "the specification of the schedule cannot be used"},
	wire.CodeHungUp:        {fasthttp.StatusBadRequest, "", "the client closed its side of the connection before the answer: it got no job"},

	wire.CodeUnauthorized: {fasthttp.StatusUnauthorized, "",
		"send Authorization: Bearer with a token of this namespace"},
	wire.CodeForbidden: {fasthttp.StatusForbidden, "", "the token is not one of this namespace"},
	wire.CodeCrossOrigin: {fasthttp.StatusForbidden, "",
		"this namespace needs no token, so requests of web pages are rejected: list the page's origin under cors_origins, or give the namespace tokens"},
	wire.CodeBadHost: {fasthttp.StatusForbidden, "",
		"this namespace needs no token, so the Host header has to be an address or localhost: a page may use any other name. Send that, or " +
			"give the namespace tokens"},

	wire.CodeNoSuchNamespace: {fasthttp.StatusNotFound, "", "this server has no namespace of that name"},
	wire.CodeNoSuchPartition: {fasthttp.StatusNotFound, "", "the partition has no entries"},
	wire.CodeNoSuchRoute:     {fasthttp.StatusNotFound, "", "no such route: POST to /v1/{namespace}/{partition}"},

	wire.CodeNoSuchJob:      {fasthttp.StatusNotFound, "", "the queue has no such job"},
	wire.CodeNoSuchSchedule: {fasthttp.StatusNotFound, "", "the queue has no such schedule"},
	wire.CodeNoSuchOwner:    {fasthttp.StatusNotFound, "", "no such owner is registered: PUT its schedules"},

	wire.CodeNoSuchTrace:      {fasthttp.StatusNotFound, "", "no trace of the job is kept: none of its queue's rules has keep_trace, it is over, or newer ones needed the room"},
	wire.CodeNotDelayed:       {fasthttp.StatusConflict, "", "the job is not delayed, or was claimed before: only one that was never claimed gets another time or payload"},
	wire.CodePrepared:         {fasthttp.StatusConflict, "", "the job is prepared: commit it, or roll it back"},
	wire.CodeNotPrepared:      {fasthttp.StatusConflict, "", "the job is not prepared, or nobody decided in time and it is dead"},
	wire.CodeAlreadyDecided:   {fasthttp.StatusConflict, "", "the opposite was decided before"},
	wire.CodeRunUnfinished:    {fasthttp.StatusConflict, "", "a job of the schedule's last run is neither ended nor dead: send force=1 to run beside it"},
	wire.CodeOtherOwner:       {fasthttp.StatusConflict, "", "the schedule belongs to another owner"},
	wire.CodeOldVersion:       {fasthttp.StatusConflict, "", "a newer version of the owner is registered: it has the schedules now"},
	wire.CodeScheduleEnded:    {fasthttp.StatusConflict, "", "the schedule has no further tick: put it anew"},
	wire.CodeRevisionMismatch: {fasthttp.StatusPreconditionFailed, "", "the schedule has another revision than If-Match says: read it again"},

	wire.CodeMethodNotAllowed: {fasthttp.StatusMethodNotAllowed, "",
		"the method is not one of those in the Allow header"},
	wire.CodeRequestTimeout:      {fasthttp.StatusRequestTimeout, "", "the request did not arrive in time: send smaller bodies"},
	wire.CodeBodyTooLarge:        {fasthttp.StatusRequestEntityTooLarge, "", "the body is too large: send fewer entries a request"},
	wire.CodeTooManyEntries:      {fasthttp.StatusRequestEntityTooLarge, "", "the request holds too many entries: send fewer"},
	wire.CodeEntryTooLarge:       {fasthttp.StatusRequestEntityTooLarge, "", "the entry is too large"},
	wire.CodeUnsupportedEncoding: {fasthttp.StatusUnsupportedMediaType, "", "Content-Encoding is gzip, zstd or left out; only one"},
	wire.CodeUnsupportedType: {fasthttp.StatusUnsupportedMediaType, "",
		"Content-Type is application/x-ndjson or application/json where items name their partition"},
	wire.CodeTooManyPartitions: {fasthttp.StatusTooManyRequests, "10",
		"the namespace has max_partitions partitions: try again when some are empty, or raise max_partitions"},
	wire.CodeTooManyKeys: {fasthttp.StatusTooManyRequests, "10",
		"the namespace remembers max_keys idempotency keys: try again when some have expired, or raise max_keys"},
	wire.CodeTooManyJobs: {fasthttp.StatusTooManyRequests, "10",
		"the namespace has max_jobs jobs, dead ones included: claim or delete some, or raise max_jobs"},
	wire.CodeTooManyQueues: {fasthttp.StatusTooManyRequests, "10",
		"the namespace has max_queues queues with jobs: try again when some are empty, or raise max_queues"},
	wire.CodeTooManySchedules: {fasthttp.StatusTooManyRequests, "10",
		"the namespace has max_schedules schedules: delete some, or raise max_schedules"},
	wire.CodeRateLimited: {fasthttp.StatusTooManyRequests, "1", "the token has used its rate: send fewer entries, read less often, or raise its rate"},
	wire.CodeHeadersTooLarge: {fasthttp.StatusRequestHeaderFieldsTooLarge, "",
		"request line and headers are larger than 8 KiB together, or there are more than 128 headers"},

	wire.CodeInternal: {fasthttp.StatusInternalServerError, "",
		"the server has a bug: please report it"},
	wire.CodeStoreUnavailable: {fasthttp.StatusServiceUnavailable, "1", "the store does not answer"},
	wire.CodeStoreFull:        {fasthttp.StatusServiceUnavailable, "5", "the store is out of memory"},
	wire.CodeOverloaded: {fasthttp.StatusServiceUnavailable, "1",
		"the server is at its limit of memory, connections or reads, or the store is slow: try again"},
	wire.CodeShuttingDown:       {fasthttp.StatusServiceUnavailable, "1", "the server is shutting down"},
	wire.CodeNotReady:           {fasthttp.StatusServiceUnavailable, "1", "the server is not ready"},
	wire.CodeVersionUnsupported: {fasthttp.StatusHTTPVersionNotSupported, "", "speak HTTP/1.1"},
}

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
type rejection struct {
	code    wire.Code
	message string        // empty: that of the table
	unknown bool          // entries may have been stored
	allow   string        // methods, with CodeMethodNotAllowed
	close   bool          // close the connection: the bytes that follow may be no request
	scope   string        // what a 429 limits
	entries int           // of the request; 0: not known
	counted bool          // each entry of the request is counted with its result
	opened  *sdkNamespace // by the key of an SDK; nil: not known
	// retryAfter is in seconds; 0 takes that of the table.
	retryAfter int
	// field of the body that is wrong, and its value.
	field, value string
}

func reject(code wire.Code) *rejection { return &rejection{code: code} }

// rejectf is reject with a message of its own. The arguments must be numbers or
// names of this package, never bytes of a client.
func rejectf(code wire.Code, format string, args ...any) *rejection {
	return &rejection{code: code, message: fmt.Sprintf(format, args...)}
}

// rejectUnknown says that the entries may have been stored.
func rejectUnknown(why error) *rejection {
	message := "the store did not confirm: the entries may have been stored"
	if errors.Is(why, partition.ErrUnconfirmed) {
		message = "stored, but fewer replicas than --durability asks for confirmed it in time: the entries may not last"
	}
	return &rejection{code: wire.CodeStoreUnavailable, unknown: true, message: message}
}

// write sets the response.
func (r *rejection) write(ctx *fasthttp.RequestCtx) {
	f := failures[r.code]
	body := wire.Failure{
		Code:    r.code,
		Message: f.message,
		Scope:   r.scope,
		Unknown: r.unknown,
		Field:   r.field,
		Value:   r.value,
	}
	if r.message != "" {
		body.Message = r.message
	}
	switch r.code {
	case wire.CodeTooManyPartitions, wire.CodeTooManyKeys, wire.CodeTooManyJobs, wire.CodeTooManyQueues:
		if body.Scope == "" {
			body.Scope = "namespace"
		}
	}
	ctx.Response.Reset()
	ctx.Response.SetStatusCode(f.status)
	ctx.Response.Header.SetContentType(jsonType)
	ctx.Response.SetBody(body.Append(nil))
	switch {
	case r.retryAfter > 0:
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(r.retryAfter))
	case f.retryAfter != "":
		ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, f.retryAfter)
	}
	if f.status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	}
	if r.allow != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, r.allow)
	}
	if r.code == wire.CodeUnsupportedEncoding {
		ctx.Response.Header.Set(fasthttp.HeaderAcceptEncoding, "gzip, zstd")
	}
}
