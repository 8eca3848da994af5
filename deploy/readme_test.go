package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const readme = "README.md"

// found returns every first group of a pattern in a text, once each.
func found(pattern, text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// section is the part of the README below a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, readme), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the README has no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// flagsOf are the flags that the help of commands lists.
func flagsOf(t *testing.T, commands ...string) []string {
	t.Helper()
	var help strings.Builder
	for _, c := range commands {
		help.WriteString(output(t, binary(t), append(strings.Fields(c), "--help")...))
	}
	return found(`(?m)^\s+(?:-\w, )?(--[a-z][a-z-]+)`, help.String())
}

func TestEveryFlagOfTheREADMEExists(t *testing.T) {
	t.Parallel()
	known := flagsOf(t, "serve", "report", "demo", "bench", "config print")
	ours := regexp.MustCompile(`(?m)^.*redis-cli .*$`).ReplaceAllString(read(t, readme), "") // whose flags are its own
	for _, flag := range found("(--[a-z][a-z-]+)", ours) {
		if !slices.Contains(known, flag) {
			t.Errorf("the README names %s, which no command has", flag)
		}
	}
}

func TestTheREADMEListsEveryFlagOfServeWithItsDefault(t *testing.T) {
	t.Parallel()
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| (.+?) \\|").FindAllStringSubmatch(section(t, "Configuration"), -1) {
		rows[m[1]] = strings.Trim(m[2], "`")
	}
	defaults := config(t)
	for _, flag := range flagsOf(t, "serve") {
		if flag == "--help" {
			continue
		}
		got, ok := rows[flag]
		want, isKey := defaults[strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", "_")]
		if !ok || isKey && !sameSetting(got, want) {
			t.Errorf("%s: the README says %q, the default is %v", flag, got, want)
		}
	}
}

// sameSetting compares as people read: config print spells 3m as 3m0s, and none
// as nothing.
func sameSetting(text string, value any) bool {
	printed := fmt.Sprint(value)
	return text == printed || text+"0s" == printed || text == "none" && printed == ""
}

func TestEveryMakeTargetOfTheREADMEExists(t *testing.T) {
	t.Parallel()
	help := output(t, "make")
	for _, file := range []string{readme, "CONTRIBUTING.md", "bench/README.md"} {
		for _, target := range found("(?m)(?:`|^)make ([a-z-]+)", read(t, file)) {
			if !strings.Contains(help, "\n  "+target+" ") {
				t.Errorf("%s: make %s does not exist", file, target)
			}
		}
	}
}

func TestTheTreeOfTheREADMEIsTheTree(t *testing.T) {
	t.Parallel()
	tree := section(t, "The tree")
	named := found(`(?m)^    ([a-z/]+)/ `, tree)
	for _, folder := range named {
		if info, err := os.Stat(filepath.Join(root, folder)); err != nil || !info.IsDir() {
			t.Errorf("the README's tree names %s, which is no folder", folder)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		top := e.Name() + "/"
		ignored := strings.HasPrefix(top, ".") || strings.Contains(read(t, ".gitignore"), "/"+top)
		if e.IsDir() && !ignored && !slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(n+"/", top) }) {
			t.Errorf("the README's tree leaves out %s", top)
		}
	}
}

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, file := range []string{readme, "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"} {
		text := read(t, file)
		for _, link := range found(`\]\(([^)\s]+)\)`, text) {
			target, anchor, _ := strings.Cut(link, "#")
			switch {
			case strings.Contains(link, "://"):
			case target == "":
				if !slices.Contains(anchors(text), anchor) {
					t.Errorf("%s links to #%s, which is no heading of it", file, anchor)
				}
			default:
				if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), target)); err != nil {
					t.Errorf("%s links to %s: %v", file, link, err)
				}
			}
		}
	}
}

// anchors are the headings of a text as links name them.
func anchors(text string) []string {
	var list []string
	for _, heading := range found(`(?m)^#+ (.+)$`, text) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), "")
		list = append(list, strings.ReplaceAll(plain, " ", "-"))
	}
	return list
}

func TestEveryErrorCodeOfTheServerIsInTheREADME(t *testing.T) {
	t.Parallel()
	brief := section(t, "The HTTP API in brief")
	for _, code := range found(`Code\w+\s+Code = "([a-z_]+)"`, read(t, "ingest/wire/codes.go")) {
		if !strings.Contains(brief, "`"+code+"`") {
			t.Errorf("the README's table has no %s", code)
		}
	}
}
