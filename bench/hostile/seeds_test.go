package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the rows into the corpora of the fuzz targets, and the table into README.md")

const root = "../.."

// maxSeed keeps the corpora small: a fuzzer does not need length.
const maxSeed = 1 << 10

// seeds are what the rows give to the fuzz targets, by folder and file name.
func seeds() map[string]map[string]string {
	all := map[string]map[string]string{}
	add := func(target, category, name, value string) {
		if len(value) > maxSeed {
			return
		}
		if all[target] == nil {
			all[target] = map[string]string{}
		}
		file := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(category+" "+name), "-"), "-")
		all[target][file] = value
	}
	raw := func(s string) string { return fmt.Sprintf("[]byte(%q)", s) }
	for _, c := range corpus() {
		for _, r := range c.rows {
			add("ingest/testdata/fuzz/FuzzConnection", c.name, r.name, raw(r.send))
			line, rest, _ := strings.Cut(r.send, "\r\n")
			_, body, _ := strings.Cut(rest, "\r\n\r\n")
			words := strings.Split(line, " ")
			switch {
			case c.name == "framing" || c.name == "protocols":
				add("ingest/testdata/fuzz/FuzzFraming", c.name, r.name, raw(r.send))
			case c.name == "paths" || c.name == "names" && strings.HasSuffix(r.name, "in the path"):
				if len(words) == 3 {
					add("ingest/testdata/fuzz/FuzzPath", c.name, r.name, raw(words[1]))
				}
			case c.name == "encodings":
				add("ingest/testdata/fuzz/FuzzInflate", c.name, r.name, raw(body))
			case c.name == "json":
				add("ingest/wire/testdata/fuzz/FuzzParseBatch", c.name, r.name, raw(body))
			case c.name == "secrets and logs":
				add("drain/sink/testdata/fuzz/FuzzValidJSON", c.name, r.name, raw(body))
			}
		}
	}
	for _, u := range refused {
		add("cmd/spillway/testdata/fuzz/FuzzURLs", "", u.name, fmt.Sprintf("string(%q)", u.url))
		add("drain/sink/testdata/fuzz/FuzzRedact", "", u.name, fmt.Sprintf("string(%q)", u.url))
		add("drain/sink/webhook/testdata/fuzz/FuzzNew", "", u.name, fmt.Sprintf("string(%q)", u.url))
	}
	return all
}

// Not in parallel: with -update it writes what the next one reads.
func TestTheRowsAreSeedsOfTheFuzzTargets(t *testing.T) {
	for folder, files := range seeds() {
		folder = filepath.Join(root, folder)
		if *update {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, value := range files {
			path, want := filepath.Join(folder, name), "go test fuzz v1\n"+value+"\n"
			if *update {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s is not its row (%v): run go test ./bench/hostile -update", path, err)
			}
		}
	}
}

// A fuzz target without seeds of its own begins each time from nothing.
func TestEveryFuzzTargetHasItsSeeds(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	found := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllSubmatch(text, -1) {
			found++
			folder := filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(m[1]))
			files, err := os.ReadDir(folder)
			if err != nil || len(files) == 0 {
				t.Errorf("%s has no seeds in %s", m[1], folder)
			}
			for _, f := range files {
				seed, err := os.ReadFile(filepath.Join(folder, f.Name()))
				if err != nil || !bytes.HasPrefix(seed, []byte("go test fuzz v1\n")) {
					t.Errorf("%s is no seed (%v)", filepath.Join(folder, f.Name()), err)
				}
			}
		}
		return nil
	})
	if err != nil || found < 20 {
		t.Errorf("found %d targets (%v)", found, err)
	}
}
