// Package chromium opens pages in a real Chromium, for tests: the standard library and the
// program chromium on PATH are all it needs. It speaks the DevTools protocol over a pipe.
//
//	page := chromium.Start(t).Open(t, server.URL)
//	var title string
//	err := page.Eval("document.title", &title)
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Browser is a running Chromium without a window. It reaches loopback addresses only.
type Browser struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan message     // by id of the command
	loads   map[string]chan struct{} // by session: one value a page that has loaded
	records map[string]*Record       // by session: of pages that Watch
	ended   error                    // why no more answers come
}

// message is a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// args keep Chromium from calling home, and from slowing pages that nobody sees.
var args = []string{
	"--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server",
	"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad", "--disable-dev-shm-usage",
	"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
	"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
}

// patience bounds what a page, or Chromium, may take.
const patience = time.Minute

var errEnded = errors.New("chromium has ended")

// Start starts Chromium with an empty profile. It ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	profile, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	// Chromium reads commands from descriptor 3 and writes answers to 4. When 3 is closed, it
	// ends: also when the test is killed.
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{
		cmd: exec.Command("chromium", append(args, "--user-data-dir="+profile)...), in: in,
		waiting: map[int]chan message{}, loads: map[string]chan struct{}{}, records: map[string]*Record{},
	}
	b.cmd.ExtraFiles = []*os.File{commands, answers}
	err = b.cmd.Start()
	_ = commands.Close()
	_ = answers.Close()
	if err != nil {
		t.Fatalf("start chromium, which has to be on PATH: %v", err)
	}
	go b.read(out)
	t.Cleanup(func() {
		b.stop()
		_ = out.Close()
		if err := os.RemoveAll(profile); err != nil {
			t.Logf("remove the profile: %v", err)
		}
	})
	return b
}

// stop asks Chromium to end, and kills it when it does not.
func (b *Browser) stop() {
	_ = b.send(message{Method: "Browser.close"}, nil)
	kill := time.AfterFunc(10*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	_ = b.cmd.Wait() // how it ends is of no interest
	_ = b.in.Close()
}

// read hands out answers until the pipe ends.
func (b *Browser) read(out io.Reader) {
	in := bufio.NewReader(out)
	for {
		text, err := in.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			b.ended = errors.Join(errEnded, err)
			for id, waiting := range b.waiting {
				delete(b.waiting, id)
				close(waiting)
			}
			b.mu.Unlock()
			return
		}
		if waiting := b.waiting[m.ID]; waiting != nil {
			delete(b.waiting, m.ID)
			waiting <- m
		}
		if loaded := b.loads[m.Session]; loaded != nil && m.Method == "Page.loadEventFired" {
			select {
			case loaded <- struct{}{}:
			default: // nobody waited for the page before
			}
		}
		if record := b.records[m.Session]; record != nil && m.Method != "" {
			record.add(m)
		}
		b.mu.Unlock()
	}
}

// send writes a command; its answer goes to the channel, which is nil where nobody waits.
func (b *Browser) send(m message, answer chan message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return b.ended
	}
	b.last++
	m.ID = b.last
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if answer != nil {
		b.waiting[m.ID] = answer
	}
	_, err = b.in.Write(append(text, 0))
	return err
}

// call sends a command and decodes its answer; a nil result drops it.
func (b *Browser) call(session, method string, params, result any) error {
	var text json.RawMessage
	if params != nil {
		var err error
		if text, err = json.Marshal(params); err != nil {
			return err
		}
	}
	answer := make(chan message, 1)
	if err := b.send(message{Session: session, Method: method, Params: text}, answer); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, errEnded)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
}
