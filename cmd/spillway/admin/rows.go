package admin

import (
	"context"

	"github.com/spillway-io/spillway/ingest/verb"
)

type requestKey struct{}

// ofPort makes a row of a verb that only this port has.
func ofPort[Q, A any](name, role, route, command, help, text string, do func(*Server, *request, *Q) (A, error)) *verb.Row {
	return verb.New(name, role, route, command, help, text, func(ctx context.Context, _ *verb.Call, q *Q) (A, error) {
		r := ctx.Value(requestKey{}).(*request)
		return do(r.server, r, q)
	})
}

const (
	details = "job ${job}|queue ${queue}|state ${state_since}|attempt ${attempt_of}|next attempt ${next_attempt}|published ${published_since}|" +
		"expires ${expires}|error ${errors.0.error}|progress ${progress_note}|result ${result}|bytes ${bytes}|attributes ${attributes}|data ${data}"
	samples  = " -> WHEN ${at_ms}|NAMESPACE ${namespace}|PARTITION ${partition}|ID ${id}|REASON ${reason}|>AGE ${age_ms}|>ENTRIES ${entries}|DETAIL ${detail or }"
	causesOf = "causes -> >COUNT ${count}|FIRST ${first_ms}|LAST ${last_ms}|CAUSE ${cause or (any other)}|ID OF THE LAST ${id}|WHICH SAID ${example}\n"
)

// own are the verbs that only this port has.
var own = []*verb.Row{
	ofPort("info", "viewer", "GET /info", "", "Version, store, and who asks.", "", (*Server).info).OfPort(),
	ofPort("overview", "viewer", "GET /overview", "", "The figures of every namespace, the sinks and workers of this process.", "", (*Server).overview).OfPort(),
	ofPort("findings", "viewer", "GET /findings", "",
		"Whether data is lost or at risk, whose, and why. A loss stays for a minute after its last entry or job; sinks and rejections are of this process.",
		"", (*Server).findings).OfPort(),
	ofPort("history", "viewer", "GET /history", "",
		"The last day by the minute, of a namespace or of all buffers, as Redis has it for every process. Null where nothing is known.",
		"", (*Server).historyOf).OfPort(),
	ofPort("drops", "viewer", "GET /drops", "drops",
		"Say why entries were dropped or rejected, from samples of this process: the newest 128 of each namespace and reason.",
		"drops"+samples, (*Server).drops).OfPort().Says("${explained}", "No sampled drop matches. An entry that is not listed was delivered (spillway deliveries says so of a sample), or waits, "+
		"or was dropped before the last 128 of its reason, or by another process. Most samples of evicted, expired, purged and lost entries have no id: "+
		"look for the partition and the time, with --partition instead of --id."),
	ofPort("deliveries", "viewer", "GET /deliveries", "deliveries",
		"Say when and where entries were delivered, from samples: of each namespace the last 128, at most 100 a second.",
		"deliveries"+samples, (*Server).deliveries).OfPort().Says("since the process started, ${total entry} were delivered; one that is not listed may wait (spillway ls), be dropped (spillway drops), "+
		"be of another process, or not be in the sample", ""),
	ofPort("pauses", "viewer", "GET /pauses", "", "What is paused.", "", (*Server).pauses).OfPort(),
	ofPort("audit", "viewer", "GET /audit", "audit", "List who paused, purged, replayed and reloaded what, and when.",
		"acts -> WHEN ${at_ms}|NAME ${name}|ROLE ${role}|ACTION ${action}|OF ${of}|>ENTRIES ${entries}|RESULT ${outcome}|DETAIL ${why or }",
		(*Server).auditTrail).OfPort().Says("", "Nobody changed anything since this process started."),
	ofPort("namespaces", "viewer", "GET /namespaces", "", "The namespaces and their settings.", "", (*Server).namespaces).OfPort(),
	ofPort("account", "viewer", "GET /namespaces/{namespace}", "stat", "Print the ledger of a namespace, of any kind.",
		"namespace ${namespace}|accepted ${ledger.accepted}|published ${ledger.published}|delivered ${ledger.delivered}|acked ${ledger.acked}|evicted ${ledger.evicted}|"+
			"expired ${ledger.expired}|deleted ${ledger.deleted}|lost ${ledger.lost}|dead ${ledger.dead}|ready ${ledger.ready}|prepared ${ledger.prepared}|delayed ${ledger.delayed}|"+
			"leased ${ledger.leased}|died ${ledger.died}|respawned ${ledger.respawned}|acked and kept ${ledger.kept or }|buffered ${ledger.buffered}|dead letters ${dead_letters}|residual ${residual}",
		(*Server).account).OfPort(),
	ofPort("partitions", "viewer", "GET /partitions", "",
		"A part of the table of partitions, from a sweep that reads some each second.", "", (*Server).partitions),
	ofPort("partition", "viewer", "GET /partitions/{partition}", "", "One partition, read now.", "", (*Server).partitionNow),
	ofPort("peek", "operator", "GET /partitions/{partition}/peek", "peek", "Print waiting entries of a partition. They stay where they are.",
		"entries -> >SEQ ${seq}|>AGE ${age_ms}|ID ${id}|>BYTES ${bytes}|DATA ${data}", (*Server).peek).
		Masks().Says("${entries.#} of ${depth waiting entry}", ""),
	ofPort("tail", "operator", "GET /tail", "",
		"A sample of the entries that arrive, as lines of JSON, up to 10 minutes; empty lines between them are heartbeats.", "", (*Server).tail).Masks(),
	ofPort("pause", "operator", "POST /pause", "pause",
		"Stop delivery of a namespace or partition, or the claims of a queue. Entries and jobs are still taken in, evicted and expired.",
		"${of}: delivery ${delivery}", (*Server).pause),
	ofPort("resume", "operator", "POST /resume", "resume", "End a pause.", "${of}: delivery ${delivery}", (*Server).resume),
	ofPort("purge", "admin", "POST /purge", "purge", "Delete waiting entries of a namespace or partition. It counts them first and asks.",
		"${of}: deleted ${entries entry} in ${partitions partition}${left_alone or }", (*Server).purge).Confirms("delete them", ""),
	ofPort("dead", "operator", "GET /dead", "dead ls", "List dead letters, the newest first, or count them by cause.",
		causesOf+"letters -> LETTER ${letter}|WHEN ${dead_at_ms}|PARTITION ${partition}|ID ${id}|>BYTES ${bytes}|>ATTEMPTS ${attempt}|REASON ${reason}|DETAIL ${detail or }",
		(*Server).dead).Masks().Says("${counted}", ""),
	ofPort("letter", "operator", "GET /dead/{letter}", "dead show", "Print one dead letter with its payload.",
		"letter ${letter}|partition ${partition}|seq ${seq}|id ${id or -}|dead at ${dead_at_ms}|reason ${reason}|detail ${detail}|attempts ${attempt}|bytes ${bytes}|data ${data}",
		(*Server).letter).Masks(),
	ofPort("replay", "operator", "POST /dead/replay", "dead replay",
		"Put dead letters back into their partitions, as new entries. It counts them first and asks.",
		"${namespace}: replayed ${replayed dead letter}", (*Server).replay).Confirms("put them back", ""),
	ofPort("delete_dead", "admin", "POST /dead/delete", "dead rm", "Delete dead letters. It counts them first and asks.",
		"${namespace}: deleted ${deleted dead letter}", (*Server).deleteDead).Confirms("delete them", ""),
	ofPort("queues", "viewer", "GET /queues", "", "A part of the table of queues, in any order.", "", (*Server).queueList),
	ofPort("queue", "viewer", "GET /queues/{queue}", "jobs stat", "Print the jobs of one queue by state, counted now.",
		"queue ${queue}|ready ${ready}|delayed ${delayed}|leased ${leased}|delayed or leased ${pending}|held by PHP ${reserved or }|dead ${dead}|acked and kept ${acked}|"+
			"oldest ready ${oldest_ready_age_ms}|delivery ${paused_by}",
		(*Server).queueNow).Says("${no_jobs or }", ""),
	ofPort("peek_job", "operator", "GET /queues/{queue}/peek", "jobs peek", "Print the job that a worker would get next. It stays where it is.",
		details, (*Server).peekJob).Masks(),
	ofPort("jobs", "operator", "GET /queues/{queue}/jobs", "", "The jobs of a queue that are in a state, without payloads.", "", (*Server).listJobs).Masks(),
	ofPort("job", "operator", "GET /queues/{queue}/jobs/{job}", "jobs get", "Print one job, in whatever state.", details, (*Server).getJob).Masks(),
	ofPort("trace", "viewer", "GET /queues/{queue}/jobs/{job}/trace", "jobs trace", "Print what happened to a job, where a rule with keep_trace keeps it.",
		"events -> AT ${at}|EVENT ${event}|>ATTEMPT ${attempt or -}|BY ${by}|DETAILS ${happened or }", (*Server).traceOf).Masks(),
	ofPort("publish_jobs", "operator", "POST /queues/{queue}/jobs", "", "Publish jobs by hand.", "", (*Server).publishJobs).InJSON(),
	ofPort("dead_jobs", "operator", "GET /queues/{queue}/dead", "jobs dead", "List dead letters of a queue, the oldest first, or count them by cause.",
		causesOf+"jobs -> JOB ${job}|DIED ${at_ms}|REASON ${reason}|ERROR ${errors.0.error}|PUBLISHED ${published_at_ms}|>ATTEMPT ${attempt_of}|>BYTES ${bytes}|DATA ${data}",
		(*Server).deadJobs).Masks().Says("${counted}", ""),
	ofPort("workers", "viewer", "GET /workers", "workers ls",
		"List the workers of a namespace that said what they are, as spillway work does, within the last 10 minutes and to this process.",
		"workers -> WORKER ${name}|QUEUES ${queues}|>CHILDREN ${children}|>BUSY ${busy}|>MEMORY ${memory}|VERSION ${version or }|TOKEN ${token or }|>SINCE ${since_ms}|>SEEN ${seen_ms}",
		(*Server).workers).Says("", "no worker said what it is"),
	ofPort("restart_workers", "operator", "POST /workers/restart", "workers restart",
		"Tell the workers of a PHP application to restart, each after its job: its own, and those of spillway work.",
		"${state}: each restarts after its job", (*Server).restartWorkers),
}

// Rows are the verbs that only this port has.
func Rows() []*verb.Row { return own }
