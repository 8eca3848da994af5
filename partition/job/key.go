package job

import "strconv"

// Every Redis key of queues is spelled in this file only.
//
//	sw:{ns.N}:j:<queue>          hash    sequence → record: the jobs
//	sw:{ns.N}:r:<queue>          list    sequences of ready jobs, oldest first
//	sw:{ns.N}:d:<queue>          zset    sequences of dead jobs by when they died, ms
//	sw:{ns.N}:u:<queue>          hash    caller's id → sequence
//	sw:{ns.N}:delay              zset    "<sequence> <queue>" by due time, ms
//	sw:{ns.N}:lease              zset    "<sequence> <queue>" by deadline, ms; .5 = the last try
//	sw:{ns.N}:attempts           hash    "<sequence> <queue>" → times claimed
//	sw:{ns.N}:queues             zset    queues with jobs, by when their head deserves a look, ms
//	sw:{ns.N}:tombstones         hash    queue → references in r: whose job is gone
//	sw:{ns.N}:ledger             hash    exact totals, format, kind, shards, epoch
//	sw:{ns.N}:out:<lane>         string  what the last claim of a lane handed out
//	sw:{ns.N}:dd:<queue>:<hash>  string  result of an idempotent publish
//	sw:{ns.N}:w:<queue>          channel of wakes
type shardKeys struct {
	prefix                                                    string // "sw:{ns.N}:"
	delay, lease, attempts, queues, tombstones, ledger, waker string
}

func newShard(prefix, namespace string, number int) *shard {
	p := prefix + ":{" + namespace + "." + strconv.Itoa(number) + "}:"
	return &shard{shardKeys{p, p + "delay", p + "lease", p + "attempts", p + "queues", p + "tombstones", p + "ledger", p + "w:"}, number}
}
