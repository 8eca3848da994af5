package partition

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// TestScriptsThatRanAfterARedirectAreNotCalledUnexecuted: the old owner of a
// slot answers MOVED or ASK, the new one runs the scripts and breaks off. The
// client writes the commands again and keeps the first error on them.
func TestScriptsThatRanAfterARedirectAreNotCalledUnexecuted(t *testing.T) {
	t.Parallel()
	const groups = 3
	for _, redirect := range []string{"MOVED", "ASK"} {
		t.Run(redirect, func(t *testing.T) {
			t.Parallel()
			old, next := listenNode(t), listenNode(t)
			slots := slotsOf(old.Addr().String())
			var ran atomic.Int64
			serveNode(old, func(command string) (answer string, ends bool) {
				switch command {
				case "cluster":
					return slots, false
				case "evalsha":
					return fmt.Sprintf("-%s 1 %s\r\n", redirect, next.Addr()), false
				}
				return "-ERR unknown command\r\n", false
			})
			serveNode(next, func(command string) (answer string, ends bool) {
				switch command {
				case "cluster":
					return slots, false
				case "asking":
					return "", false // lost with the others
				case "evalsha":
					return "", ran.Add(1) == groups
				}
				return "-ERR unknown command\r\n", false
			})
			at := func(url string) *Store {
				s, err := Open(Config{URL: url, Prefix: "sw", Namespaces: map[string]Policy{"default": DefaultPolicy()}}, prometheus.NewRegistry(), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			s, passed := at("redis-cluster://"+old.Addr().String()), at("embedded:")
			if _, err := passed.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.space = passed.space
			var list []*Group
			for i := range groups {
				entry := AppendEntry(nil, MinTime, nil, []byte("x"))
				list = append(list, &Group{ // each a call of its own
					Namespace: s.Namespace("default"), Partition: fmt.Sprint("p", i), Entries: slices.Repeat([][]byte{entry}, maxCallEntries),
				})
			}
			for end := time.Now().Add(20 * time.Second); ran.Load() == 0 && time.Now().Before(end); { // a busy machine may connect late
				s.Produce(t.Context(), list)
			}
			if ran.Load() != groups {
				t.Fatalf("%d scripts ran, want %d", ran.Load(), groups)
			}
			for _, g := range list {
				if !errors.Is(g.Err, ErrUnknown) {
					t.Errorf("%s ran and is answered: %v", g.Partition, g.Err)
				}
			}
		})
	}
}

func listenNode(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// slotsOf says that one node has all slots.
func slotsOf(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n%s\r\n", len(host), host, port, strings.Repeat("a", 40))
}

// serveNode answers each command by its name; after ends it breaks off.
func serveNode(ln net.Listener, answer func(command string) (answer string, ends bool)) {
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			command, err := readCommand(r)
			if err != nil {
				return
			}
			text, ends := answer(command)
			if _, err := io.WriteString(c, text); err != nil || ends {
				return
			}
		}
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// readCommand reads a command and returns its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	number := func() int {
		line, failed := r.ReadString('\n')
		if err = errors.Join(err, failed); err != nil {
			return 0
		}
		n, failed := strconv.Atoi(strings.TrimSpace(line[1:]))
		err = errors.Join(err, failed)
		return n
	}
	for i, n := 0, number(); i < n && err == nil; i++ {
		arg := make([]byte, number()+2)
		_, failed := io.ReadFull(r, arg)
		err = errors.Join(err, failed)
		if i == 0 {
			name = strings.ToLower(string(arg[:len(arg)-2]))
		}
	}
	return name, err
}

func TestRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{"": {}, "1/s": {1, time.Second}, "1000/min": {1000, time.Minute}, "1000000000/h": {MaxRate, time.Hour}} {
		var got Rate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%q: got %+v %q, %v", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"x", "1", "0/s", "-1/s", "1/d", "1.5/s", "1000000001/h", "1/s ", "/s", "99999999999999999999/s"} {
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "write one such as") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// Whoever can write to Redis chooses these texts.
