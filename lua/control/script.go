// Package control holds the scripts of what operators make at run time: namespaces,
// tokens, and rates that processes share; and of the history that they see.
//
//	read    the control document, or what changed in it
//	change  change it, unless another process was first
//	close   let no process store jobs in a shard of a namespace that is being deleted
//	record  add a minute to the history of a namespace of any kind
//	grant   grant a process a part of a shared rate
//
// A file opens with its interface, as those of package lua do. Package partition/control
// spells the keys and has one Go caller per script.
package control

import (
	"embed"

	"github.com/spillway-io/spillway/lua"
)

//go:embed *.lua
var files embed.FS

var load = lua.Loader(files)

// The scripts, by their verbs.
var (
	Read   = load("read")
	Change = load("change")
	Grant  = load("grant")
	Close  = load("close")
	Record = load("record")
)

// All lists every script.
func All() []*lua.Script { return []*lua.Script{Read, Change, Grant, Close, Record} }
