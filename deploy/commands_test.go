package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// TestTheDocumentsWorkAsPasted goes through each document as a newcomer would
// and runs each command of its sh blocks, on free ports and in a temp folder. A
// comment below a command is the answer it promises, compared by its keys.
func TestTheDocumentsWorkAsPasted(t *testing.T) {
	t.Parallel()
	for file, min := range map[string]int{readme: 3, api: 5, guarantees: 3, operating: 8, configuration: 3, queues: 11} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			n := newcomer{t: t, tmp: t.TempDir(), file: file}
			commands := 0
			for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(read(t, file), -1) {
				answer := ""
				for line := range strings.Lines(block[1]) {
					line = strings.TrimSpace(line)
					if promised, ok := strings.CutPrefix(line, "# "); ok {
						n.compare(answer, promised)
						continue
					}
					commands++
					answer = n.run(line)
				}
			}
			if commands < min {
				t.Errorf("only %d commands were found, want %d or more", commands, min)
			}
		})
	}
}

func TestEveryMetricOfTheDocumentsExists(t *testing.T) {
	t.Parallel()
	known := everySeries(t)
	for _, file := range documents {
		for _, name := range found(`(spillway_[a-z_]+)`, read(t, file)) {
			if known[name] == nil && known[name+"_bucket"] == nil {
				t.Errorf("%s names %s, which is not at /metrics", file, name)
			}
		}
	}
}

// newcomer is a reader who pastes: the server they started, and where it really listens.
type newcomer struct {
	t           *testing.T
	tmp         string
	file        string // the document that is read
	data, admin string // host:port of the server started last
	redis       string // host:port of the redis-server started last
	job         string // the id that a publish answered last
}

// jobID is the id of a job in a document, which stands for the one that a reader got.
var jobID = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`)

// run does what a command line does and returns what it prints.
func (n *newcomer) run(line string) string {
	n.t.Helper()
	words := strings.Fields(line)
	switch {
	case line == "make run": // build and demo, which prints to a terminal and feeds itself
		n.serve("--sink", "null:", "--linger", "1m") // what is sent is still there when it is asked for
	case words[0] == "make": // TestEveryMakeTargetOfTheDocumentsExists; make test is where we are
	case strings.HasPrefix(line, "docker build "): // only CI builds the image: the command must be the one that CI runs
		workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.y*ml"))
		runs := func(workflow string) bool {
			text, err := os.ReadFile(workflow)
			return err == nil && bytes.Contains(text, []byte(line))
		}
		if err != nil || !slices.ContainsFunc(workflows, runs) {
			n.t.Errorf("%s: CI does not run %q", n.file, line)
		}
	case strings.HasPrefix(line, "docker run "):
		_, args, ok := strings.Cut(line, " spillway serve ")
		if !ok {
			n.t.Fatalf("%s: %q does not run spillway serve", n.file, line)
		}
		return output(n.t, binary, append([]string{"config", "check"}, strings.Fields(args)...)...)
	case words[0] == "curl":
		return n.curl(line)
	case words[0] == "redis-server":
		n.redis = redistest.Start(n.t, words[1:]...).Addr
	case strings.HasPrefix(line, "bin/spillway serve "):
		line = strings.ReplaceAll(line, "127.0.0.1:6379", n.redis)
		n.serve(strings.Fields(strings.ReplaceAll(line, "/tmp/", n.tmp+"/"))[2:]...)
	case strings.HasPrefix(line, "bin/spillway config "):
		return output(n.t, binary, words[1:]...)
	case line == "bin/spillway token":
		return output(n.t, binary, "token")
	case strings.HasPrefix(line, "printf ") && strings.Contains(line, "> /tmp/"):
		return output(n.t, "sh", "-c", strings.ReplaceAll(line, "/tmp/", n.tmp+"/"))
	case strings.HasPrefix(line, "cat /tmp/"):
		return n.await(filepath.Join(n.tmp, strings.TrimPrefix(line, "cat /tmp/")))
	case strings.Contains(line, "bin/spillway report"):
		cmd := exec.CommandContext(n.t.Context(), "sh", "-c", strings.ReplaceAll(line, "bin/spillway", binary))
		cmd.Env = append(os.Environ(), "SPILLWAY_SERVER=http://"+n.data)
		out, err := cmd.CombinedOutput()
		if err != nil {
			n.t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	default:
		n.t.Errorf("%s: no way to try %q: teach this test, or leave it out", n.file, line)
	}
	return ""
}

// serve starts the binary and waits for the log line that names its ports.
func (n *newcomer) serve(args ...string) {
	n.t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	logs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	started := make(chan [2]string, 1)
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			var line struct {
				Msg, Listen string
				AdminListen string `json:"admin_listen"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "started" {
				started <- [2]string{line.Listen, line.AdminListen}
			}
		}
		_ = cmd.Wait() // nobody asks how it ended; Cleanup waits that it has
	}()
	n.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	select {
	case ports := <-started:
		n.data, n.admin = ports[0], ports[1]
	case <-ended:
		n.t.Fatalf("spillway %v ended without having started", args)
	}
}

// curl does what the program would, for the few options that documents need; any
// other is an error, so nothing is silently left out.
func (n *newcomer) curl(line string) string {
	n.t.Helper()
	method, url, header, body := http.MethodGet, "", http.Header{}, ""
	words := shellWords(line)[1:]
	for i := 0; i < len(words); i++ {
		switch word := words[i]; word {
		case "-d", "-H", "-X":
			i++
			switch word {
			case "-d":
				method, body = http.MethodPost, words[i]
				if header.Get("Content-Type") == "" {
					header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
				}
			case "-H":
				name, value, _ := strings.Cut(words[i], ":")
				header.Set(name, strings.TrimSpace(value))
			case "-X":
				method = words[i]
			}
		default:
			if strings.HasPrefix(word, "-") || url != "" {
				n.t.Fatalf("%s: do not know what %s means", line, word)
			}
			url = word
		}
	}
	url = strings.NewReplacer("127.0.0.1:8080", n.data, "127.0.0.1:8081", n.admin).Replace(url)
	if n.job != "" {
		url, body = jobID.ReplaceAllString(url, n.job), jobID.ReplaceAllString(body, n.job)
	}
	req, err := http.NewRequestWithContext(n.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatalf("%s: %v", line, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("%s: %s, %v: %s", line, resp.Status, err, answer)
	}
	var published struct{ IDs []string }
	if json.Unmarshal(answer, &published) == nil && len(published.IDs) > 0 {
		n.job = published.IDs[0]
	}
	return string(answer)
}

// shellWords splits a line at spaces outside single quotes.
func shellWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 0 {
			words = append(words, strings.Fields(part)...)
		} else {
			words = append(words, part)
		}
	}
	return words
}

// await reads a file as soon as the sink has written to it: batches linger.
func (n *newcomer) await(name string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(name)
		if err == nil && bytes.Count(text, []byte("\n")) >= 3 { // as many as were reported
			n.compare(strings.Split(string(text), "\n")[0], n.documentedLine())
			return string(text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.t.Fatalf("%s: %q, %v", name, text, err)
		}
	}
}

// documentedLine is the document's example of what sinks write.
func (n *newcomer) documentedLine() string {
	n.t.Helper()
	m := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(read(n.t, n.file))
	if m == nil {
		n.t.Fatalf("%s shows no line of a sink", n.file)
	}
	return m[1]
}

// compare holds an answer against the one that the document promises: the same
// keys, at every depth. An answer may have more.
func (n *newcomer) compare(got, promised string) {
	n.t.Helper()
	var g, p map[string]any
	if err := json.Unmarshal([]byte(promised), &p); err != nil {
		n.t.Fatalf("%s promises %s: %v", n.file, promised, err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		n.t.Fatalf("got %s: %v", got, err)
	}
	gotKeys := keysOf("", g)
	for _, key := range keysOf("", p) {
		if !slices.Contains(gotKeys, key) {
			n.t.Errorf("%s promises %s, got %s", n.file, key, got)
		}
	}
}

// keysOf lists the keys of nested objects as a.b, those of the first object of a list as
// a[].b, and what a state is, because it says whether the command did what the text says.
func keysOf(prefix string, m map[string]any) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		keys = append(keys, prefix+key)
		switch value := m[key].(type) {
		case map[string]any:
			keys = append(keys, keysOf(prefix+key+".", value)...)
		case []any:
			if len(value) > 0 {
				if first, ok := value[0].(map[string]any); ok {
					keys = append(keys, keysOf(prefix+key+"[].", first)...)
				}
			}
		case string:
			if key == "state" {
				keys = append(keys, prefix+"state="+value)
			}
		}
	}
	return keys
}

// TestTheRemovalOfANamespaceLeavesTheOthers runs the command of OPERATING.md.
func TestTheRemovalOfANamespaceLeavesTheOthers(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(redistest.Start(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	cli := "redis-cli -h " + host + " -p " + port
	run := func(command string) string {
		t.Helper()
		text, err := exec.Command("bash", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", command, err, text)
		}
		return string(text)
	}
	removed := []string{"sw:{kart.0}:q:p", "sw:{kart.12}:ledger", "sw:{kart.0}:m:kart.eu", "sw:{kart}:drainers"}
	kept := []string{"sw:{control}:doc", "sw:{kart.1.0}:ledger", "sw:{kart.1x.0}:ledger", "sw:{kart.eu.0}:q:p", "sw:{karts.0}:ledger"}
	for _, key := range append(removed, kept...) {
		run(cli + " set '" + key + "' 1")
	}
	command := ""
	for line := range strings.SplitSeq(read(t, "deploy/OPERATING.md"), "\n") {
		if strings.Contains(line, "--pattern 'sw:{kart*") {
			command = line
		}
	}
	run(strings.ReplaceAll(command, "redis-cli", cli))
	left := strings.Fields(run(cli + " --scan"))
	slices.Sort(left)
	if !slices.Equal(left, kept) {
		t.Errorf("left are %q, want %q", left, kept)
	}
}
