package lua

import (
	"crypto/sha1" // #nosec G505 -- Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.lua include/*.lua
var files embed.FS

// A Script is one atomic verb, as text for SCRIPT LOAD and as digest for EVALSHA.
type Script struct {
	Name   string
	Source string
	SHA    string // of Source, 40 hex digits
	Header Header
}

// The scripts, by their verbs.
var (
	Produce         = mustLoad("produce")
	Claim           = mustLoad("claim")
	Commit          = mustLoad("commit")
	Release         = mustLoad("release")
	Repair          = mustLoad("repair")
	Pause           = mustLoad("pause")
	Resume          = mustLoad("resume")
	Page            = mustLoad("page")
	Stats           = mustLoad("stats")
	Peek            = mustLoad("peek")
	Purge           = mustLoad("purge")
	Discard         = mustLoad("discard")
	PermissionProbe = mustLoad("permission_probe")
)

// All lists every script. A client loads all of them before its first EVALSHA, because
// a pipeline does not recover from NOSCRIPT by itself.
func All() []*Script {
	return []*Script{Produce, Claim, Commit, Release, Repair, Pause, Resume, Page, Stats, Peek, Purge, Discard, PermissionProbe}
}

func mustLoad(name string) *Script { return MustLoad(files, name) }

// MustLoad reads the script name.lua from dir and puts its includes before it. An
// include is include/<use>.lua of dir, or else one of this package. The files are part
// of the binary, so it panics only in a broken build, and then every test fails.
func MustLoad(dir fs.FS, name string) *Script {
	body, err := fs.ReadFile(dir, name+".lua")
	if err != nil {
		panic(err)
	}
	header, err := ParseHeader(string(body))
	if err != nil {
		panic(fmt.Errorf("%s.lua: %w", name, err))
	}
	var source strings.Builder
	for _, use := range header.Uses {
		path := "include/" + use + ".lua"
		include, err := fs.ReadFile(dir, path)
		if errors.Is(err, fs.ErrNotExist) {
			include, err = files.ReadFile(path)
		}
		if err != nil {
			panic(fmt.Errorf("%s.lua: %w", name, err))
		}
		source.Write(include)
	}
	source.Write(body)
	sum := sha1.Sum([]byte(source.String())) // #nosec G401 -- see the import
	return &Script{name, source.String(), hex.EncodeToString(sum[:]), header}
}
