// Package layout holds the scripts that move a namespace to other shards while it serves: one
// atomic step per file.
//
//	record        change what a namespace records of its layouts
//	fence         let a shard take no entries for its own layout any more
//	gone          tell of which partitions a fenced shard has nothing left
//	put_off       let partitions wait for their entries in an older layout
//	close         end a shard in which nothing is left
//	result        read the result of an idempotent produce in a former home
//	trim          drop the oldest entries of a partition that lies in two layouts
//	adopt_pauses  take over the pauses of a closed shard
//
// Nothing is copied but pauses: entries leave an older shard by being delivered, evicted or
// expired. Each step may be done by every process, any number of times. The contract of a file
// is that of package lua, whose includes and loader it shares. Package partition/space says
// in which order the steps are right. Import it as lualayout.
package layout

import (
	"embed"

	"github.com/spillway-io/spillway/lua"
)

//go:embed *.lua
var files embed.FS

// The scripts, by their steps.
var (
	Record      = lua.MustLoad(files, "record")
	Fence       = lua.MustLoad(files, "fence")
	Gone        = lua.MustLoad(files, "gone")
	PutOff      = lua.MustLoad(files, "put_off")
	Close       = lua.MustLoad(files, "close")
	Result      = lua.MustLoad(files, "result")
	Trim        = lua.MustLoad(files, "trim")
	AdoptPauses = lua.MustLoad(files, "adopt_pauses")
)

// All lists every script, so that a client can load them before its first EVALSHA.
func All() []*lua.Script {
	return []*lua.Script{Record, Fence, Gone, PutOff, Close, Result, Trim, AdoptPauses}
}
