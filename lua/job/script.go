package job

import (
	"embed"

	"github.com/spillway-io/spillway/lua"
)

//go:embed *.lua include/*.lua
var files embed.FS

// The scripts, by their verbs.
var (
	Publish  = lua.MustLoad(files, "publish")
	Claim    = lua.MustLoad(files, "claim")
	Ack      = lua.MustLoad(files, "ack")
	Settle   = lua.MustLoad(files, "settle")
	Revert   = lua.MustLoad(files, "revert")
	Promote  = lua.MustLoad(files, "promote")
	Respawn  = lua.MustLoad(files, "respawn")
	Purge    = lua.MustLoad(files, "purge")
	Expire   = lua.MustLoad(files, "expire")
	Peek     = lua.MustLoad(files, "peek")
	Get      = lua.MustLoad(files, "get")
	Counts   = lua.MustLoad(files, "counts")
	DeadPage = lua.MustLoad(files, "dead_page")
	Ledger   = lua.MustLoad(files, "ledger")

	PermissionProbe = lua.MustLoad(files, "permission_probe")
)

// All lists every script, so that a client can load them before its first EVALSHA.
func All() []*lua.Script {
	return []*lua.Script{Publish, Claim, Ack, Settle, Revert, Promote, Respawn, Purge, Expire, Peek, Get, Counts, DeadPage, Ledger, PermissionProbe}
}
