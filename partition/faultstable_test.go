package partition_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
		if len(cells) != 6 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "fault" {
			continue
		}
		rows++
		names := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[4], -1)
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
