package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/webhook"
)

const (
	readme        = "README.md"
	api           = "ingest/API.md"
	guarantees    = "partition/GUARANTEES.md"
	operating     = "deploy/OPERATING.md"
	configuration = "deploy/CONFIGURATION.md"
	sizing        = "deploy/SIZING.md"
	migrating     = "deploy/MIGRATING.md"
	queues        = "deploy/QUEUES.md"
	phpQueues     = "deploy/PHP.md"
)

// documents are what users read: every flag, metric, command and answer in them
// is tried. The commands of phpQueues need PHP: deploy/php tries them.
var documents = []string{readme, api, guarantees, operating, configuration, sizing, migrating, queues, phpQueues}

// found returns every first group of a pattern in a text, once each.
func found(pattern, text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// section is the part of a document below a heading.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, file), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", file, heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// helps are the help of commands that was printed already.
var helps sync.Map

// flagsOf are the flags that the help of commands lists.
func flagsOf(t *testing.T, commands ...string) []string {
	t.Helper()
	var help strings.Builder
	for _, c := range commands {
		text, known := helps.Load(c)
		if !known {
			text = output(t, binary, append(strings.Fields(c), "--help")...)
			helps.Store(c, text)
		}
		help.WriteString(text.(string))
	}
	return found(`(?m)^\s+(?:-\w, )?(--[a-z][a-z-]+)`, help.String())
}

func TestTheREADMEIsShort(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(read(t, readme), "\n"); lines > 130 {
		t.Errorf("the README has %d lines, want 130 at most: move what most readers do not need to one of %v", lines, documents[1:])
	}
}

func TestTheREADMELinksToEveryDocument(t *testing.T) {
	t.Parallel()
	for _, file := range append(documents[1:], "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "bench/peers/README.md") {
		if !strings.Contains(read(t, readme), "]("+file) {
			t.Errorf("the README does not link to %s", file)
		}
	}
}

func TestEveryFlagOfTheDocumentsExists(t *testing.T) {
	t.Parallel()
	known := found(`(--[a-z][a-z-]+)`, output(t, binary, "completion", "bash"))
	// The flags of Redis, PHP, Docker, Kubernetes and systemd are their own.
	foreign := regexp.MustCompile(`(?m)^php .*$|^.*(?:redis-cli|redis-server|kubectl|systemctl|systemd-tmpfiles) .*$|docker run .*? spillway `)
	for _, file := range documents {
		for _, flag := range found("(--[a-z][a-z-]+)", foreign.ReplaceAllString(read(t, file), "")) {
			if !slices.Contains(known, flag) {
				t.Errorf("%s names %s, which no command has", file, flag)
			}
		}
	}
}

func TestTheConfigurationListsEveryFlagOfServeWithItsDefault(t *testing.T) {
	t.Parallel()
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| (.+?) \\|").FindAllStringSubmatch(section(t, configuration, "Every setting"), -1) {
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
			t.Errorf("%s: %s says %q, the default is %v", flag, configuration, got, want)
		}
	}
}

// sameSetting compares as people read: config print spells 3m as 3m0s, and none
// as nothing.
func sameSetting(text string, value any) bool {
	printed := fmt.Sprint(value)
	return text == printed || text+"0s" == printed || text == "none" && printed == ""
}

func TestEveryYAMLBlockIsAccepted(t *testing.T) {
	t.Parallel()
	blocks := 0
	for _, file := range documents {
		for _, block := range found("(?ms)^```yaml\n(.*?)^```", read(t, file)) {
			blocks++
			path := filepath.Join(t.TempDir(), "block.yaml")
			if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			output(t, binary, "config", "check", "--config", path)
		}
	}
	if blocks == 0 {
		t.Error("no yaml block was found")
	}
}

func TestEveryMakeTargetOfTheDocumentsExists(t *testing.T) {
	t.Parallel()
	help := output(t, "make")
	for _, file := range allMarkdown(t) {
		for _, target := range found("(?m)(?:`|^)make ([a-z-]+)", read(t, file)) {
			if !strings.Contains(help, "\n  "+target+" ") {
				t.Errorf("%s: make %s does not exist", file, target)
			}
		}
	}
}

func TestTheTreeOfTheREADMEIsTheTree(t *testing.T) {
	t.Parallel()
	tree := section(t, readme, "The tree")
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

// allMarkdown lists every Markdown file of the repository.
func allMarkdown(t *testing.T) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bin" || path == "tmp" || path == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range documents {
		if !slices.Contains(files, file) {
			t.Errorf("%s was not found", file)
		}
	}
	return files
}

// A DESIGN.md with a table of files has each file of its package, and no other.
func TestTablesOfFilesAreComplete(t *testing.T) {
	t.Parallel()
	var designs []string
	for _, pattern := range []string{"*", "*/*", "*/*/*"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern, "DESIGN.md"))
		if err != nil {
			t.Fatal(err)
		}
		designs = append(designs, paths...)
	}
	tables := 0
	for _, design := range designs {
		text, err := os.ReadFile(design)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, has := strings.Cut(string(text), "\n| file | holds |\n")
		if !has {
			continue
		}
		tables++
		table, _, _ := strings.Cut(rest, "\n\n")
		var files []string
		paths, err := filepath.Glob(filepath.Join(filepath.Dir(design), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if name := filepath.Base(path); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				files = append(files, name)
			}
		}
		slices.Sort(files)
		if named := found("`([a-z_0-9]+\\.go)`", table); !slices.Equal(named, files) {
			t.Errorf("%s\n names  %v\n want   %v", design, named, files)
		}
	}
	if tables < 5 {
		t.Errorf("only %d tables found: this proves nothing", tables)
	}
}

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, file := range allMarkdown(t) {
		for _, link := range found(`\]\(([^)\s]+)\)`, read(t, file)) {
			target, anchor, _ := strings.Cut(link, "#")
			if strings.Contains(link, "://") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s: %v", file, link, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s, which is no heading there", file, link)
			}
		}
	}
}

// anchors are the headings of a text as links name them.
func anchors(text string) []string {
	var list []string
	for _, heading := range found(`(?m)^#+ (.+)$`, text) {
		plain := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading), "")
		list = append(list, strings.ReplaceAll(plain, " ", "-"))
	}
	return list
}

func TestEveryCodeAndReasonOfTheServerIsInTheAPI(t *testing.T) {
	t.Parallel()
	answers := section(t, api, "What the answer says")
	codes := found(`(?:Code|Reason)\w+\s+(?:Code|Reason) = "([a-z_]+)"`, read(t, "ingest/wire/codes.go"))
	if len(codes) < 30 {
		t.Errorf("only %d codes were found", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(answers, "`"+code+"`") {
			t.Errorf("the tables of %s have no %s", api, code)
		}
	}
}

// The code in the document builds in a module of one's own, with the command for a clone.
func TestTheGoCodeOfTheQueuesBuildsInAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a build of another module")
	}
	code := found("(?ms)^```go\n(.*?)^```", read(t, queues))
	edit := found("`go (mod edit [^`]+)`", read(t, queues))
	path := found("import\\s`([^`]+)`", read(t, queues))
	if len(code) != 1 || len(edit) != 1 || len(path) != 1 {
		t.Fatalf("%d blocks of code, %d commands and %d imports, want one of each", len(code), len(edit), len(path))
	}
	clone, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := "package worker\n\nimport (\n\"context\"\n\"time\"\n\n" + path[0] + "\n)\n\n" +
		"func work(ctx context.Context, payload []byte, send func(context.Context, []byte) error) error {\n" + code[0] + "return err\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "worker.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	inPlugin(t, dir, "go", "mod", "init", "example.com/worker")
	inPlugin(t, dir, "go", strings.Fields(strings.ReplaceAll(edit[0], "/path/to/the/clone", clone))...)
	inPlugin(t, dir, "go", "vet", ".")
}

// The request in the document is what the webhook sends for the jobs in it, and the answer
// means what the document says.
func TestAPushedBatchIsAsTheDocumentShowsIt(t *testing.T) {
	t.Parallel()
	example := found("(?ms)^```http\n(.*?)^```", read(t, queues))
	answer := found("(?m)^```json\n(\\{\"results\".*)\n```", read(t, queues))
	if len(example) != 1 || len(answer) != 1 {
		t.Fatalf("%d requests and %d answers in %s, want one of each", len(example), len(answer), queues)
	}
	b := jobsOf(t, example[0])
	head, body, _ := strings.Cut(strings.ReplaceAll(example[0], "BATCH", b.ID()), "\n\n")
	want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}

	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if r.Method != want.Method || r.URL.Path != want.URL.Path || string(sent) != body {
			t.Errorf("%s %s with\n%swant %s %s with\n%s", r.Method, r.URL, sent, want.Method, want.URL, body)
		}
		for name := range want.Header {
			if got := r.Header.Get(name); got != want.Header.Get(name) {
				t.Errorf("%s: got %q, want %q", name, got, want.Header.Get(name))
			}
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-") && want.Header.Get(name) == "" {
				t.Errorf("%s is sent, and not in the document", name)
			}
		}
		_, _ = io.WriteString(w, answer[0])
	}))
	t.Cleanup(receiver.Close)
	target, err := url.Parse(receiver.URL + want.URL.Path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := webhook.New(target)
	if err != nil {
		t.Fatal(err)
	}
	var named *sink.BatchError
	if err := s.Write(t.Context(), []*sink.Batch{b}); !errors.As(err, &named) || len(named.Failed) != 1 || named.Failed[0].Entry != 1 || sink.IsPermanent(named.Failed[0].Err) {
		t.Errorf("got %v, want that the second job comes again", err)
	}
}

// jobsOf makes a batch of the lines of a request.
func jobsOf(t *testing.T, request string) *sink.Batch {
	t.Helper()
	b := &sink.Batch{Deadline: time.Now().Add(time.Hour)}
	for _, line := range found(`(?m)^(\{.*\})$`, request) {
		var l struct {
			Namespace, Partition, ID, Text string
			Seq, TS                        int64
			Attempt, Tries                 int
			Attributes, Data               json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		payload := []byte(l.Data)
		if payload == nil {
			payload = []byte(l.Text)
		}
		b.Namespace, b.Partition, b.Attempt = l.Namespace, l.Partition, max(b.Attempt, l.Attempt)
		b.Entries = append(b.Entries, sink.Entry{Seq: l.Seq, Occurred: l.TS, ID: []byte(l.ID), Payload: payload})
		b.Jobs = append(b.Jobs, sink.Job{Attempt: l.Attempt, Tries: l.Tries, Attributes: bytes.TrimSpace(l.Attributes)})
	}
	if len(b.Entries) != 2 || !regexp.MustCompile(`^[0-9A-Z]{26}$`).Match(b.Entries[0].ID) {
		t.Fatalf("got %+v, want two jobs", b)
	}
	b.FirstSeq = b.Entries[0].Seq
	return b
}
