// Package php holds the scripts over the queues of PHP's libraries, think-queue and Laravel,
// on their own keys: one atomic verb per file.
//
//	publish    push payloads, ready or delayed
//	claim      hand ready payloads out, each under a lease that PHP's workers heed
//	settle     ack, nack, release, bury, requeue or touch payloads that are leased
//	revert     take back a claim with an unknown outcome
//	respawn    make dead letters ready again, or delete them
//	purge      remove payloads of a queue
//	look       count the payloads of a queue by state
//	peek       read the next ready payload
//	get        read one delivery and its state
//	dead_page  read dead letters
//
// and permission_probe, which tries every command that they need.
//
// The contract of a file is that of package lua, whose includes and loader it shares.
// DESIGN.md tells keys, costs and invariants. Import it as luaphp.
package php

import (
	"embed"

	"github.com/spillway-io/spillway/lua"
)

//go:embed *.lua include/*.lua
var files embed.FS

var load = lua.Loader(files)

// The scripts, by their verbs.
var (
	Publish  = load("publish")
	Claim    = load("claim")
	Settle   = load("settle")
	Revert   = load("revert")
	Respawn  = load("respawn")
	Purge    = load("purge")
	Look     = load("look")
	Peek     = load("peek")
	Get      = load("get")
	DeadPage = load("dead_page")

	PermissionProbe = load("permission_probe")
)

// All lists every script, so that a client can load them before its first EVALSHA.
func All() []*lua.Script {
	return []*lua.Script{Publish, Claim, Settle, Revert, Respawn, Purge, Look, Peek, Get, DeadPage, PermissionProbe}
}
