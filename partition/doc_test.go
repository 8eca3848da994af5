package partition_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheGlossaryExplainsTheTermsOfTheProject(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, ok := strings.Cut(string(doc), "\n// # Glossary\n")
	if !ok {
		t.Fatal("doc.go has no section Glossary")
	}
	for _, term := range []string{
		"namespace", "shard", "partition", "entry", "sequence", "capacity", "dead letter", "due", "batch", "linger", "range", "cut", "lease",
		"token", "claim", "commit", "release", "settle", "repair", "janitor", "lane", "zone", "headless list", "evicted", "expired", "lost",
		"reclaimed", "ledger", "residual",
	} {
		if !strings.Contains(glossary, "\n//\t"+term+"  ") {
			t.Errorf("the glossary does not explain %q", term)
		}
	}
}

// Every test that the table of faults names exists.
func TestEveryFaultNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			known[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(string(table), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "fault" {
			continue
		}
		rows++
		names := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("no test:%s", cells[1])
		}
		for _, m := range names {
			if !known[m[1]] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), m[1])
			}
		}
	}
	if rows < 35 {
		t.Errorf("only %d rows were read", rows)
	}
}
