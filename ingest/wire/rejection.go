package wire

import "fmt"

// Rejection says why a whole request is not served. Its code is counted.
type Rejection struct {
	Failure        // the answer; without a Message it has that of the code
	Allow   string // methods, with CodeMethodNotAllowed
	Close   bool   // close the connection: the bytes that follow may be no request
	Entries int    // of the request; 0: not known
	Counted bool   // each entry of the request is counted with its result
	// RetryAfter is in seconds; 0 takes that of the code.
	RetryAfter int
}

// Reject rejects with the status and message of the code.
func Reject(code Code) *Rejection { return &Rejection{Failure: Failure{Code: code}} }

// Rejectf is Reject with a message of its own. The arguments must be numbers or
// names of the server, never bytes of a client.
func Rejectf(code Code, format string, args ...any) *Rejection {
	return &Rejection{Failure: Failure{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Text is the reason for people.
func (r *Rejection) Text() string {
	if r.Message != "" {
		return r.Message
	}
	return Responses[r.Code].Message
}

func (r *Rejection) Error() string { return r.Text() }

// RetryIn makes a client wait before it tries again, in seconds.
func (r *Rejection) RetryIn(seconds int) *Rejection {
	r.RetryAfter = seconds
	return r
}

// Of says which field of the body is wrong, and its value.
func (r *Rejection) Of(field, value string) *Rejection {
	r.Field, r.Value = field, value
	return r
}

// Closing closes the connection after the answer.
func (r *Rejection) Closing() *Rejection {
	r.Close = true
	return r
}

// Response is how a code is answered.
type Response struct {
	Status     int
	RetryAfter string // seconds; empty sends no header
	Message    string // for people, unless the rejection has its own
}

// Responses is the one table of public codes. It never changes.
var Responses = map[Code]Response{
	CodeBadRequest:   {400, "", "the request cannot be read as HTTP/1.1"},
	CodeEmptyBody:    {400, "", "the body is empty: send at least one entry"},
	CodeEmptyBatch:   {400, "", "the batch holds no entry: send at least one"},
	CodeBadNDJSON:    {400, "", "a line is not JSON"},
	CodeBadJSON:      {400, "", "the body is not valid JSON, or nests deeper than 512 levels"},
	CodeBadPartition: {400, "", "a partition's name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or digit"},
	CodeBadNamespace: {400, "", "a namespace's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit"},
	CodeBadTime:      {400, "", "times are Unix milliseconds in at most 13 digits"},
	CodeBadHeader:    {400, "", "a header is malformed"},
	CodeBadEncoding:  {400, "", "the body does not match its Content-Encoding: it is cut short, corrupt or followed by other bytes"},

	CodeBadQueue:      {400, "", "a queue's name is 1 to 255 of A-Z a-z 0-9 . _ - and begins with a letter, digit or -"},
	CodeBadParameter:  {400, "", "the route has no such parameter, or it is given twice"},
	CodeBadDelay:      {400, "", "delay is a duration such as 5s"},
	CodeBadReason:     {400, "", "reason is nacked, lapsed, buried or undecided"},
	CodeBadError:      {400, "", "error is a part of what an attempt said, 1 to 1024 bytes"},
	CodeBadAge:        {400, "", "age is a duration such as 1h"},
	CodeBadAfter:      {400, "", "after is not where a page of this list ended, or too old: begin without it"},
	CodeBadTTL:        {400, "", "ttl is a duration such as 24h, longer than delay; 0: for ever"},
	CodeBadTries:      {400, "", "tries is 1 to 65535"},
	CodeBadID:         {400, "", "id is 1 to 64 of A-Z a-z 0-9 _ -, of one job"},
	CodeBadShards:     {400, "", "shards is 1 to 1000, of one job"},
	CodeBadDedup:      {400, "", "dedup is a duration from 1s to 24h"},
	CodeBadCount:      {400, "", "count is 1 to 1000"},
	CodeBadTTR:        {400, "", "ttr is a duration such as 60s, up to 720h"},
	CodeBadWait:       {400, "", "wait is a duration from 0s to 10m"},
	CodeBadState:      {400, "", "state is ready or all"},
	CodeBadStep:       {400, "", "step is a duration from 1s to 720h"},
	CodeBadSteps:      {400, "", "steps is 1 to 1000"},
	CodeBadDo:         {400, "", "do is respawn or delete"},
	CodeBadLimit:      {400, "", "limit is 1 to 10000"},
	CodeBadOffset:     {400, "", "offset is 0 to 1000000000"},
	CodeBadName:       {400, "", "a schedule's name is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter, digit or -"},
	CodeBadAt:         {400, "", "at is a time of RFC 3339 to come, without delay"},
	CodeBadFrom:       {400, "", "from is a time of RFC 3339, such as 2026-12-01T02:30:00Z"},
	CodeBadTo:         {400, "", "to is a time of RFC 3339 after from"},
	CodeBadForce:      {400, "", "force is 1, or left out"},
	CodeBadUnique:     {400, "", "unique is how long doubles are refused: a duration from 1s to 24h, for one job"},
	CodeBadUniqueKey:  {400, "", "unique_key is 1 to 255 bytes of printable text, beside unique and without id"},
	CodeBadOnConflict: {400, "", "on_conflict is keep, replace or extend, beside unique"},
	CodeBadOnEnd:      {400, "", "on_end is the name of a queue"},
	CodeBadPrepare:    {400, "", "prepare is 1, or left out"},
	CodeBadCheck:      {400, "", "check is the queue that is asked about prepared jobs"},
	CodeBadCheckAfter: {400, "", "check_after is a duration such as 60s"},
	CodeBadChecks:     {400, "", "checks is how often check is asked"},
	CodeBadDelayMS:    {400, "", "delay_ms is a whole number of milliseconds, 0 or more, without at"},
	CodeBadData:       {400, "", "data is a JSON value, or data_base64 bytes as base64: one of them"},
	CodeBadVersion:    {400, "", "version is a whole number from 1 that rises with each deploy"},
	CodeBadSchedules:  {400, "", "schedules is keep or delete"},
	CodeBadSchedule:   {400, "", "the specification of the schedule cannot be used"},
	CodeBadJob:        {400, "", "the body holds no job that PHP could run"},
	CodeHungUp:        {400, "", "the client closed its side of the connection before the answer: it got no job"},

	CodeUnauthorized: {401, "", "send Authorization: Bearer with a token of this namespace"},
	CodeForbidden:    {403, "", "the token is not one of this namespace"},
	CodeCrossOrigin: {403, "",
		"this namespace needs no token, so requests of web pages are rejected: list the page's origin under cors_origins, or give " +
			"the namespace tokens"},
	CodeBadHost: {403, "",
		"this namespace needs no token, so the Host header has to be an address or localhost: a page may use any other name. Send that, or " +
			"give the namespace tokens"},

	CodeNoSuchNamespace: {404, "", "this server has no namespace of that name"},
	CodeNoSuchPartition: {404, "", "the partition has no entries"},
	CodeNoSuchRoute:     {404, "", "no such route: POST to /v1/{namespace}/{partition}"},

	CodeNoSuchJob:      {404, "", "the queue has no such job"},
	CodeNoSuchQueue:    {404, "", "the namespace serves no queue of that name: its queues: lists those that it does"},
	CodeNoSuchSchedule: {404, "", "the queue has no such schedule"},
	CodeNoSuchOwner:    {404, "", "no such owner is registered: PUT its schedules"},
	CodeNoSuchTrace: {404, "",
		"no trace of the job is kept: none of its queue's rules has keep_trace, it is over, or newer ones needed the room"},

	CodeNotDelayed: {409, "",
		"the job is not delayed; another time or payload gets only one that was never claimed"},
	CodePrepared:         {409, "", "the job is prepared: commit it, or roll it back"},
	CodeNotPrepared:      {409, "", "the job is not prepared, or nobody decided in time and it is dead"},
	CodeAlreadyDecided:   {409, "", "the opposite was decided before"},
	CodeRunUnfinished:    {409, "", "a job of the schedule's last run is neither ended nor dead: send force=1 to run beside it"},
	CodeOtherOwner:       {409, "", "the schedule belongs to another owner"},
	CodeForeignType:      {409, "", "a key of the queue holds a value of another type, which another program wrote: look at TYPE of its keys"},
	CodeOldVersion:       {409, "", "a newer version of the owner is registered: it has the schedules now"},
	CodeScheduleEnded:    {409, "", "the schedule has no further tick: put it anew"},
	CodeRevisionMismatch: {412, "", "the schedule has another revision than If-Match says: read it again"},

	CodeMethodNotAllowed:    {405, "", "the method is not one of those in the Allow header"},
	CodeRequestTimeout:      {408, "", "the request did not arrive in time: send smaller bodies"},
	CodeBodyTooLarge:        {413, "", "the body is too large: send fewer entries a request"},
	CodeTooManyEntries:      {413, "", "the request holds too many entries: send fewer"},
	CodeEntryTooLarge:       {413, "", "the entry is too large"},
	CodeUnsupportedEncoding: {415, "", "Content-Encoding is gzip, zstd or left out; only one"},
	CodeUnsupportedType:     {415, "", "Content-Type is application/x-ndjson or application/json where items name their partition"},
	CodeTooManyPartitions: {429, "10",
		"the namespace has max_partitions partitions: try again when some are empty, or raise max_partitions"},
	CodeTooManyKeys: {429, "10",
		"the namespace remembers max_keys idempotency keys: try again when some have expired, or raise max_keys"},
	CodeTooManyJobs: {429, "10", "the namespace has max_jobs jobs, dead ones included: claim or delete some, or raise max_jobs"},
	CodeTooManyQueues: {429, "10",
		"the namespace has max_queues queues with jobs: try again when some are empty, or raise max_queues"},
	CodeTooManySchedules: {429, "10", "the namespace has max_schedules schedules: delete some, or raise max_schedules"},
	CodeRateLimited:      {429, "1", "the token has used its rate: send fewer entries, read less often, or raise its rate"},
	CodeHeadersTooLarge:  {431, "", "request line and headers are larger than 8 KiB together, or there are more than 128 headers"},

	CodeInternal:           {500, "", "the server has a bug: please report it"},
	CodeStoreUnavailable:   {503, "1", "the store does not answer, or rejects writes"},
	CodeStoreFull:          {503, "5", "the store is out of memory"},
	CodeOverloaded:         {503, "1", "the server is at its limit of memory, connections or reads, or the store is slow: try again"},
	CodeShuttingDown:       {503, "1", "the server is shutting down"},
	CodeNotReady:           {503, "1", "the server is not ready"},
	CodeVersionUnsupported: {505, "", "speak HTTP/1.1"},
}
