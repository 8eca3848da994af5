package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// arguments is the memory of the keys and arguments of the calls of a Run. Text is kept
// back to back, because each string of its own would be an allocation.
type arguments struct {
	text []byte
	refs []textArg
}

// textArg is an argument. The client takes a pointer to it without an allocation.
type textArg []byte

func (t *textArg) MarshalBinary() ([]byte, error) { return *t, nil }

func (a *arguments) reset() { a.text, a.refs = a.text[:0], a.refs[:0] }

// end makes the text from start on an argument of c.
func (a *arguments) end(c *backend.Call, start int) {
	a.refs = append(a.refs, a.text[start:len(a.text):len(a.text)])
	c.Args = append(c.Args, &a.refs[len(a.refs)-1])
}

// join adds the parts as one argument.
func (a *arguments) join(c *backend.Call, parts ...string) {
	start := len(a.text)
	for _, part := range parts {
		a.text = append(a.text, part...)
	}
	a.end(c, start)
}

// int adds a number, which is 0 or more.
func (a *arguments) int(c *backend.Call, n int64) {
	if n < 256 {
		c.Args = append(c.Args, n) // Go keeps these as interfaces already
		return
	}
	start := len(a.text)
	a.text = strconv.AppendInt(a.text, n, 10)
	a.end(c, start)
}

// wish adds whether a claim wants to know what is left of a queue, and the queue's limit with how
// those are woken that it holds back.
func (a *arguments) wish(c *backend.Call, left bool, l limit, sh *shard, wake string) {
	flag := int64(0)
	if left {
		flag = 1
	}
	if l.pause == 0 && l.leases == 0 {
		a.int(c, flag)
		return
	}
	start := len(a.text)
	a.text = append(strconv.AppendInt(a.text, flag, 10), ' ')
	a.text = append(strconv.AppendInt(a.text, l.pause, 10), ' ')
	a.text = strconv.AppendInt(a.text, l.burst, 10)
	if l.leases > 0 {
		a.text = strconv.AppendInt(append(a.text, ' '), int64(l.leases), 10)
		a.text = append(append(append(append(a.text, ' '), wake...), ' '), sh.channel...)
	}
	a.end(c, start)
}

// reference adds a job as the scripts take it: its sequence, an exclamation mark where it
// is deleted, two where its work is undone, and behind a colon the caller's id and, after a space, the result of the work.
func (a *arguments) reference(c *backend.Call, r Ref, marks string, result []byte) {
	start := len(a.text)
	a.text = append(strconv.AppendInt(a.text, r.Seq, 10), marks...)
	if marks != "" || r.CallerID != "" || len(result) > 0 {
		a.text = append(append(a.text, ':'), r.CallerID...)
	}
	if len(result) > 0 {
		a.text = append(append(a.text, ' '), result...)
	}
	a.end(c, start)
}

// record adds the record of a message.
func (a *arguments) record(c *backend.Call, expires int64, p *Publish, m Message) {
	start := len(a.text)
	a.text = appendRecord(a.text, expires, p.Tries, p.CallerID, m)
	a.end(c, start)
}

// readyJobsIDs adds the keys r: j: u: of a queue, allKeys r: j: d: u:.
func (a *arguments) readyJobsIDs(c *backend.Call, sh *shard, queue string) {
	a.join(c, sh.Prefix, "r:", queue)
	a.join(c, sh.Prefix, "j:", queue)
	a.join(c, sh.Prefix, "u:", queue)
}

func (a *arguments) allKeys(c *backend.Call, sh *shard, queue string) {
	a.join(c, sh.Prefix, "r:", queue)
	a.join(c, sh.Prefix, "j:", queue)
	a.join(c, sh.Prefix, "d:", queue)
	a.join(c, sh.Prefix, "u:", queue)
}

// resultKey adds the key of the result of an idempotent publish.
func (a *arguments) resultKey(c *backend.Call, sh *shard, queue, key string) {
	start := len(a.text)
	a.text = sh.appendResult(a.text, queue, key)
	a.end(c, start)
}

// appendResult appends the key of what is remembered under an idempotency key.
func (k *shardKeys) appendResult(dst []byte, queue, key string) []byte {
	sum := sha256.Sum256([]byte(key))
	dst = append(append(append(append(dst, k.Prefix...), "dd:"...), queue...), ':')
	return hex.AppendEncode(dst, sum[:16])
}

// numbers gives the queues of a call their numbers, from 1 on.
type numbers struct {
	names []string
	of    map[string]int
	last  int
}

func (n *numbers) reset() {
	n.names, n.last = n.names[:0], 0
	if n.of == nil {
		n.of = map[string]int{}
	}
	clear(n.of)
}

// number returns the number of a queue, a new one where it has none.
func (n *numbers) number(queue string) int {
	if n.last > 0 && n.names[n.last-1] == queue {
		return n.last
	}
	i, ok := n.of[queue]
	if !ok {
		n.names = append(n.names, queue)
		i = len(n.names)
		n.of[queue] = i
	}
	n.last = i
	return i
}

// Every Redis key of queues is spelled in this file only.
//
//	sw:{ns.N}:j:<queue>          hash    sequence → record: the jobs
//	sw:{ns.N}:r:<queue>          list    sequences of ready jobs, oldest first
//	sw:{ns.N}:d:<queue>          zset    sequences of dead jobs by when they died, ms
//	sw:{ns.N}:u:<queue>          hash    caller's id → sequence; "!<sequence>" → why attempts of the job failed
//	sw:{ns.N}:delay              zset    "<sequence> <queue>" by due time, ms; prepared ones by minus the time when they are asked for
//	sw:{ns.N}:lease              zset    "<sequence> <queue>" by deadline, ms; .5 = the last try
//	sw:{ns.N}:attempts           hash    "<sequence> <queue>" → times claimed
//	sw:{ns.N}:queues             zset    queues with jobs, by when their head deserves a look, ms
//	sw:{ns.N}:tombstones         hash    queue → references in r: whose job is gone
//	sw:{ns.N}:ledger             hash    exact totals, format, kind, shards, epoch
//	sw:{ns.0}:history            list    a record a minute: see space.History
//	sw:{ns.N}:out:<lane>         string  what the last claim of a lane handed out
//	sw:{ns.N}:dd:<queue>:<hash>  string  result of an idempotent publish, decision on a prepared job
//	sw:{ns.N}:rate:<queue>       string  µs when the bucket of the queue's rate is full again, until then
//	sw:{ns.N}:slots              hash    "<sequence> <queue>" of leases that a limit counts; counts
//	sw:{ns.N}:paused             hash    paused queue → since when, ms, by whom and why
//	sw:{ns.N}:taken              hash    queue → what claims took while somebody pages through its ready jobs
//	sw:{ns.N}:k:<queue>          hash    sequence → record of an acked job that is kept; "!<sequence>" → attempt, ms and result
//	sw:{ns.N}:a:<queue>          zset    their sequences by when they are over, ms
//	sw:{ns.N}:kept               zset    queues that have any, by when the first is over, ms
//	sw:{ns.N}:w:<queue>          channel of wakes
//	sw:{ns.N}:s:<queue>          hash    name of a schedule → specification
//	sw:{ns.N}:state              hash    "<name> <queue>" → state of the schedule
//	sw:{ns.N}:due                zset    "<name> <queue>" of active schedules, by when they deserve a look, ms
//	sw:{ns.N}:owners             zset    owners of schedules by when their registration ends, ms
//	sw:{ns.N}:o:<owner>          hash    version, and "<name> <queue>" of its schedules → the version that put it
//	sw:{ns.N}:on_end             hash    "<sequence> <queue>" → what the end of the job sets off
//	sw:{ns.N}:r:_out, j:_out     list, hash: the outbox, a queue of follow-ups on their way
//	sw:{ns.N}:run:<queue>:<hash> string  result of an idempotent trigger
//	sw:{ns.N}:traces             hash    "<sequence> <queue>" → what happened to the job, lines of JSON
//	sw:{ns.N}:traced             zset    the same by when it is forgotten, ms
type shardKeys struct {
	*space.Shard                               // with the prefix "sw:{ns.N}:"
	lease, attempts, queues, delay, tombstones string
	channel                                    string // of wakes, without the queue
	states, due, owners                        string // of schedules
	onEnd                                      string
	traces, traced                             string
	paused, taken, kept                        string
	slots                                      string
}

// wakeChannel begins the channels of wakes, behind the prefix of the shard.
const wakeChannel = "w:"

func newShardKeys(at *space.Shard) shardKeys {
	p := at.Prefix
	return shardKeys{
		Shard:      at,
		lease:      p + "lease",
		attempts:   p + "attempts",
		queues:     p + "queues",
		delay:      p + "delay",
		tombstones: p + "tombstones",
		channel:    p + wakeChannel,
		states:     p + "state",
		due:        p + "due",
		owners:     p + "owners",
		onEnd:      p + "on_end",
		traces:     p + "traces",
		traced:     p + "traced",
		paused:     p + "paused",
		taken:      p + "taken",
		kept:       p + "kept",
		slots:      p + "slots",
	}
}

func (k *shardKeys) ready(queue string) string { return k.Prefix + "r:" + queue }
func (k *shardKeys) jobs(queue string) string  { return k.Prefix + "j:" + queue }
func (k *shardKeys) dead(queue string) string  { return k.Prefix + "d:" + queue }
func (k *shardKeys) ids(queue string) string   { return k.Prefix + "u:" + queue }
func (k *shardKeys) acked(queue string) string { return k.Prefix + "k:" + queue }
func (k *shardKeys) until(queue string) string { return k.Prefix + "a:" + queue }
func (k *shardKeys) owned(owner string) string { return k.Prefix + "o:" + owner }
func (k *shardKeys) specs(queue string) string { return k.Prefix + "s:" + queue }
