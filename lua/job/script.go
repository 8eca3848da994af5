// Package job holds the scripts of durable jobs: one atomic verb per file.
//
//	publish    store jobs, ready or delayed
//	claim      hand ready jobs out, each under a lease
//	ack        remove jobs whose work is done
//	decide     commit or roll back a prepared job
//	reschedule give a delayed job another time or payload
//	settle     nack, bury, requeue or touch jobs that are leased
//	revert     take back a claim with an unknown outcome
//	promote    make ready what is due, and again ready or dead what lapsed
//	respawn    make dead letters ready again, or delete them
//	purge      delete jobs of a queue
//	expire     drop jobs whose ttl is over where nothing else meets them; audit
//	peek       read the next ready job
//	get        read one job and its state
//	counts     count the jobs of queues by state
//	dead_page  read dead letters
//	stored     read what a former home of a queue knows of a publish
//	ledger     read the totals of a shard
//	trace      note what happened to jobs
//	list       read a page of the jobs of a queue
//	pause      stop the claims of a queue, or resume them
//	drop_kept  forget acked jobs that were kept for a while
//
// of schedules:
//
//	put_schedule, pause_schedule, delete_schedule
//	register   note that the owner of schedules lives
//	hold       let no schedule into a shard whose namespace gets others
//	due_page   read the schedules that are due
//	fire       publish the jobs of their ticks, and move them on
//	trigger    publish a run beside the ticks
//
// and permission_probe, which tries every command that a store needs.
//
// The contract of a file is that of package lua, whose includes and loader it shares.
// DESIGN.md tells keys, costs and invariants. Package partition/job spells the keys.
// Import it as luajob.
package job

import (
	"embed"

	"github.com/spillway-io/spillway/lua"
)

//go:embed *.lua include/*.lua
var files embed.FS

// The scripts, by their verbs.
var (
	Publish    = lua.MustLoad(files, "publish")
	Claim      = lua.MustLoad(files, "claim")
	Ack        = lua.MustLoad(files, "ack")
	Settle     = lua.MustLoad(files, "settle")
	Revert     = lua.MustLoad(files, "revert")
	Reschedule = lua.MustLoad(files, "reschedule")
	Decide     = lua.MustLoad(files, "decide")
	Promote    = lua.MustLoad(files, "promote")
	Respawn    = lua.MustLoad(files, "respawn")
	Purge      = lua.MustLoad(files, "purge")
	Expire     = lua.MustLoad(files, "expire")
	Peek       = lua.MustLoad(files, "peek")
	Get        = lua.MustLoad(files, "get")
	Counts     = lua.MustLoad(files, "counts")
	DeadPage   = lua.MustLoad(files, "dead_page")
	Ledger     = lua.MustLoad(files, "ledger")
	Trace      = lua.MustLoad(files, "trace")
	List       = lua.MustLoad(files, "list")
	Pause      = lua.MustLoad(files, "pause")
	DropKept   = lua.MustLoad(files, "drop_kept")

	PutSchedule    = lua.MustLoad(files, "put_schedule")
	PauseSchedule  = lua.MustLoad(files, "pause_schedule")
	DeleteSchedule = lua.MustLoad(files, "delete_schedule")
	Register       = lua.MustLoad(files, "register")
	DuePage        = lua.MustLoad(files, "due_page")
	Fire           = lua.MustLoad(files, "fire")
	Trigger        = lua.MustLoad(files, "trigger")

	PermissionProbe = lua.MustLoad(files, "permission_probe")
)

// All lists every script, so that a client can load them before its first EVALSHA.
func All() []*lua.Script {
	return []*lua.Script{Publish, Claim, Ack, Settle, Revert, Reschedule, Decide, Promote, Respawn, Purge, Expire, Peek, Get,
		Counts, DeadPage, Ledger, Trace, List, Pause, DropKept, PutSchedule, PauseSchedule, DeleteSchedule, Register, DuePage, Fire, Trigger,
		PermissionProbe}
}
