package job

import "github.com/spillway-io/spillway/partition/space"

// Every Redis key of queues is spelled in this file and in arguments.go only.
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
	*space.Shard                               // with the prefix "sw:{ns.N}:"
	lease, attempts, queues, delay, tombstones string
	channel                                    string // of wakes, without the queue
}

func newShardKeys(at *space.Shard) shardKeys {
	p := at.Prefix
	return shardKeys{at, p + "lease", p + "attempts", p + "queues", p + "delay", p + "tombstones", p + "w:"}
}

func (k *shardKeys) ready(queue string) string { return k.Prefix + "r:" + queue }
func (k *shardKeys) jobs(queue string) string  { return k.Prefix + "j:" + queue }
func (k *shardKeys) dead(queue string) string  { return k.Prefix + "d:" + queue }
func (k *shardKeys) ids(queue string) string   { return k.Prefix + "u:" + queue }
