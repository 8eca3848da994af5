package lua

import (
	"cmp"
	"crypto/sha1" // #nosec G505 -- Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
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

var (
	shared = Includes(files)
	load   = Loader(files)
)

// The scripts, by their verbs.
var (
	Produce         = load("produce")
	Claim           = load("claim")
	Commit          = load("commit")
	Release         = load("release")
	Repair          = load("repair")
	Pause           = load("pause")
	Resume          = load("resume")
	Page            = load("page")
	Stats           = load("stats")
	Peek            = load("peek")
	Purge           = load("purge")
	Discard         = load("discard")
	PermissionProbe = load("permission_probe")
)

// All lists every script. A client loads all of them before its first EVALSHA, because
// a pipeline does not recover from NOSCRIPT by itself.
func All() []*Script {
	return []*Script{Produce, Claim, Commit, Release, Repair, Pause, Resume, Page, Stats, Peek, Purge,
		Discard, PermissionProbe}
}

// Loader returns what reads a script name.lua of dir and puts the functions that it USES
// before it: those of dir, or else of this package. A line "-- WITH a, b" stands for functions that only the block needs where it stands:
// what no call needs by rule, no call makes. The files are part of the binary, so it
// panics only in a broken build, and then every test fails.
func Loader(dir fs.FS) func(name string) *Script {
	own := Includes(dir)
	return func(name string) *Script { return mustLoad(dir, own, name) }
}

func mustLoad(dir fs.FS, own map[string]string, name string) *Script {
	body, err := fs.ReadFile(dir, name+".lua")
	if err != nil {
		panic(err)
	}
	header, err := ParseHeader(string(body))
	if err != nil {
		panic(fmt.Errorf("%s.lua: %w", name, err))
	}
	var expand func(text string) string
	functions := func(names []string) string {
		var all strings.Builder
		for _, use := range names {
			text := cmp.Or(own[use], shared[use])
			if text == "" {
				panic(fmt.Errorf("%s.lua: %s is in no file of include", name, use))
			}
			all.WriteString(expand(text))
		}
		return all.String()
	}
	expand = func(text string) string {
		if !strings.Contains(text, "-- WITH ") { // of most texts, and cheaper: each process loads all scripts
			return text
		}
		return withLine.ReplaceAllStringFunc(text, func(line string) string { return functions(withNames(line)) })
	}
	source := functions(header.Uses) + expand(string(body))
	sum := sha1.Sum([]byte(source)) // #nosec G401 -- see the import
	return &Script{name, source, hex.EncodeToString(sum[:]), header}
}

var withLine = regexp.MustCompile(`(?m)^ *-- WITH .+\n`)

func withNames(line string) []string {
	_, names, _ := strings.Cut(strings.TrimSpace(line), "-- WITH ")
	return strings.Split(names, ", ")
}

// With lists the functions that blocks of a script, or of a function of include, have by lines "-- WITH a, b".
func With(source string) []string {
	var all []string
	for _, line := range withLine.FindAllString(source, -1) {
		all = append(all, withNames(line)...)
	}
	return all
}

var sectionLine = regexp.MustCompile(`(?m)^-- ([a-z_]+): `)

// Includes are the functions of dir's include/*.lua, by their names. A file has those of
// one theme; each opens with a comment "-- name: ", so that a script gets what it USES
// and nothing else, which it would make anew in every call.
func Includes(dir fs.FS) map[string]string {
	paths, err := fs.Glob(dir, "include/*.lua")
	if err != nil {
		panic(err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := fs.ReadFile(dir, path)
		if err != nil {
			panic(err)
		}
		sections := sectionLine.FindAllStringSubmatchIndex(string(text), -1)
		for i, m := range sections {
			end := len(text)
			if i+1 < len(sections) {
				end = sections[i+1][0]
			}
			all[string(text[m[2]:m[3]])] = strings.TrimRight(string(text[m[0]:end]), "\n") + "\n"
		}
	}
	return all
}
