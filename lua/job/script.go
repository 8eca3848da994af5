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

var load = lua.Loader(files)

// The scripts, by their verbs.
var (
	Publish    = load("publish")
	Claim      = load("claim")
	Ack        = load("ack")
	Settle     = load("settle")
	Revert     = load("revert")
	Reschedule = load("reschedule")
	Decide     = load("decide")
	Promote    = load("promote")
	Respawn    = load("respawn")
	Purge      = load("purge")
	Expire     = load("expire")
	Peek       = load("peek")
	Get        = load("get")
	Counts     = load("counts")
	DeadPage   = load("dead_page")
	Ledger     = load("ledger")
	Trace      = load("trace")
	List       = load("list")
	Pause      = load("pause")
	DropKept   = load("drop_kept")

	PutSchedule    = load("put_schedule")
	PauseSchedule  = load("pause_schedule")
	DeleteSchedule = load("delete_schedule")
	Register       = load("register")
	DuePage        = load("due_page")
	Fire           = load("fire")
	Trigger        = load("trigger")

	PermissionProbe = load("permission_probe")
)

// All lists every script, so that a client can load them before its first EVALSHA.
func All() []*lua.Script {
	return []*lua.Script{Publish, Claim, Ack, Settle, Revert, Reschedule, Decide, Promote, Respawn, Purge, Expire, Peek, Get,
		Counts, DeadPage, Ledger, Trace, List, Pause, DropKept, PutSchedule, PauseSchedule, DeleteSchedule, Register, DuePage, Fire, Trigger,
		PermissionProbe}
}
