// Package wire defines what is sent over the data port: error codes, request bodies,
// headers and answers. It imports neither an HTTP server nor Redis, so that clients
// can use it too.
//
// Decoders return views of their input and copy nothing. Do not change the input
// while the views are in use, and copy what must outlive it. Encoders append.
//
//	lines := wire.SplitLines(body)
//	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
//		…
//	}
package wire

// Code says why a whole request was rejected. Codes never change their meaning, and
// are never removed.
type Code string

const (
	CodeBadRequest   Code = "bad_request"
	CodeEmptyBody    Code = "empty_body"
	CodeEmptyBatch   Code = "empty_batch"
	CodeBadNDJSON    Code = "bad_ndjson"
	CodeBadJSON      Code = "bad_json"
	CodeBadPartition Code = "bad_partition"
	CodeBadNamespace Code = "bad_namespace"
	CodeBadTime      Code = "bad_time"
	CodeBadHeader    Code = "bad_header"
	CodeBadEncoding  Code = "bad_encoding"

	// Of queues; CodeBadParameter is a parameter that the route does not have.
	CodeBadQueue      Code = "bad_queue"
	CodeBadParameter  Code = "bad_parameter"
	CodeBadDelay      Code = "bad_delay"
	CodeBadTTL        Code = "bad_ttl"
	CodeBadAfter      Code = "bad_after"
	CodeBadReason     Code = "bad_reason"
	CodeBadError      Code = "bad_error"
	CodeBadAge        Code = "bad_age"
	CodeBadTries      Code = "bad_tries"
	CodeBadID         Code = "bad_id"
	CodeBadShards     Code = "bad_shards"
	CodeBadDedup      Code = "bad_dedup"
	CodeBadUnique     Code = "bad_unique"
	CodeBadUniqueKey  Code = "bad_unique_key"
	CodeBadOnConflict Code = "bad_on_conflict"
	CodeBadCount      Code = "bad_count"
	CodeBadTTR        Code = "bad_ttr"
	CodeBadWait       Code = "bad_wait"
	CodeBadState      Code = "bad_state"
	CodeBadStep       Code = "bad_step"
	CodeBadSteps      Code = "bad_steps"
	CodeBadDo         Code = "bad_do"
	CodeBadLimit      Code = "bad_limit"
	CodeBadOffset     Code = "bad_offset"
	CodeBadSchedule   Code = "bad_schedule"
	CodeBadName       Code = "bad_name"
	CodeBadAt         Code = "bad_at"
	CodeBadFrom       Code = "bad_from"
	CodeBadTo         Code = "bad_to"
	CodeBadForce      Code = "bad_force"
	CodeBadOnEnd      Code = "bad_on_end"
	CodeBadPrepare    Code = "bad_prepare"
	CodeBadCheck      Code = "bad_check"
	CodeBadCheckAfter Code = "bad_check_after"
	CodeBadChecks     Code = "bad_checks"
	CodeBadDelayMS    Code = "bad_delay_ms"
	CodeBadData       Code = "bad_data"
	CodeBadVersion    Code = "bad_version"
	CodeBadSchedules  Code = "bad_schedules"
	CodeHungUp        Code = "hung_up"
	CodeBadJob        Code = "bad_job"

	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeCrossOrigin  Code = "cross_origin"
	CodeBadHost      Code = "bad_host"

	CodeNoSuchNamespace Code = "no_such_namespace"
	CodeNoSuchPartition Code = "no_such_partition"
	CodeNoSuchRoute     Code = "no_such_route"
	CodeNoSuchJob       Code = "no_such_job"
	CodeNoSuchSchedule  Code = "no_such_schedule"
	CodeNoSuchOwner     Code = "no_such_owner"
	CodeNoSuchQueue     Code = "no_such_queue"

	CodeNoSuchTrace      Code = "no_such_trace"
	CodeNotDelayed       Code = "not_delayed"
	CodePrepared         Code = "prepared"
	CodeNotPrepared      Code = "not_prepared"
	CodeAlreadyDecided   Code = "already_decided"
	CodeRunUnfinished    Code = "run_unfinished"
	CodeOtherOwner       Code = "other_owner"
	CodeOldVersion       Code = "old_version"
	CodeScheduleEnded    Code = "schedule_ended"
	CodeRevisionMismatch Code = "revision_mismatch"
	CodeForeignType      Code = "foreign_type"

	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeRequestTimeout      Code = "request_timeout"
	CodeBodyTooLarge        Code = "body_too_large"
	CodeTooManyEntries      Code = "too_many_entries"
	CodeEntryTooLarge       Code = "entry_too_large"
	CodeUnsupportedEncoding Code = "unsupported_encoding"
	CodeUnsupportedType     Code = "unsupported_type"
	CodeTooManyPartitions   Code = "too_many_partitions"
	CodeTooManyKeys         Code = "too_many_keys"
	CodeTooManyJobs         Code = "too_many_jobs"
	CodeTooManyQueues       Code = "too_many_queues"
	CodeTooManySchedules    Code = "too_many_schedules"
	CodeRateLimited         Code = "rate_limited"
	CodeHeadersTooLarge     Code = "headers_too_large"

	CodeInternal           Code = "internal"
	CodeStoreUnavailable   Code = "store_unavailable"
	CodeStoreFull          Code = "store_full"
	CodeOverloaded         Code = "overloaded"
	CodeShuttingDown       Code = "shutting_down"
	CodeNotReady           Code = "not_ready"
	CodeVersionUnsupported Code = "version_unsupported"
)

// Disposition is what happened to one entry that was not stored, or stored with a
// warning.
type Disposition string

const (
	Warning Disposition = "warning" // stored, with a remark
	Drop    Disposition = "drop"    // not stored, and never will be; do not send it again
	Retry   Disposition = "retry"   // not stored, or with an unknown outcome; send it again
)

// Reason says why an entry has its Disposition. The list is closed.
type Reason string

const (
	ReasonTooLarge          Reason = "too_large"
	ReasonStale             Reason = "stale"
	ReasonBadTS             Reason = "bad_ts"
	ReasonBadID             Reason = "bad_id"
	ReasonBadPartition      Reason = "bad_partition"
	ReasonBadItem           Reason = "bad_item"
	ReasonFiltered          Reason = "filtered"
	ReasonSampled           Reason = "sampled"
	ReasonEmptied           Reason = "emptied"
	ReasonUnreadable        Reason = "unreadable"
	ReasonTooManyPartitions Reason = "too_many_partitions"
	ReasonTooManyKeys       Reason = "too_many_keys"
	ReasonUnskewed          Reason = "unskewed"
	ReasonLooksCompressed   Reason = "looks_compressed"
	ReasonLooksBatched      Reason = "looks_batched"
	ReasonStoreUnavailable  Reason = "store_unavailable"
	ReasonStoreFull         Reason = "store_full"
	ReasonUnknown           Reason = "unknown"
)
