package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/bench"
)

var binary = sync.OnceValues(func() (string, error) { return buildSpillway(context.Background(), scratch) })

// scratch is where the tests' binary is; TestMain removes it.
var scratch string

func testConditions(t *testing.T, events int64) conditions {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return conditions{
		spillway: bin, redisServer: "redis-server", duration: time.Minute, limit: events,
		senders: 8, partitions: 10, payload: 200, capacity: 65536,
	}
}

// TestEverySideDeliversAll says nothing about speed; it holds every adapter to
// what the figures presuppose.
func TestEverySideDeliversAll(t *testing.T) {
	t.Parallel()
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := measure(t.Context(), c, testConditions(t, 1000))
			if err != nil {
				t.Fatal(err)
			}
			if s.Acked != 1000 || s.Failed+s.Lost+s.Left+s.Repeated != 0 {
				t.Errorf("got %+v, want 1000 acknowledged and each delivered once", s)
			}
			if s.Fill <= 0 || s.Fill > 1 || s.CPU() <= 0 || s.EndToEnd <= 0 || s.EndToEnd > s.In {
				t.Errorf("got %+v, want batches of at most 128 and figures that make sense", s)
			}
		})
	}
}

// TestOverflowIsSeenAsLost fills one partition beyond its capacity before
// anybody drains.
func TestOverflowIsSeenAsLost(t *testing.T) {
	t.Parallel()
	cond := testConditions(t, 0)
	cond.partitions, cond.capacity = 1, 100
	s, err := openSeed(t.Context(), cond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for n := range int64(150) {
		payload := bench.AppendPayload(nil, n, bench.Padding(cond.payload))
		if err := s.send(t.Context(), []event{{0, payload}}); err != nil {
			t.Fatal(err)
		}
	}
	tl := newTally()
	ctx, stop := context.WithCancel(t.Context())
	var delivering sync.WaitGroup
	delivering.Go(func() { err = s.deliver(ctx, tl) })
	quiet := drain(t.Context(), tl, 150, time.Now())
	stop()
	delivering.Wait()
	if err != nil || !quiet || tl.delivered.Load() != 100 || tl.damaged.Load() != 0 {
		t.Errorf("got %d delivered, quiet %v, %v; want the newest 100", tl.delivered.Load(), quiet, err)
	}
}

func TestTallyTellsRepeatedAndDamagedApart(t *testing.T) {
	t.Parallel()
	write := func(n int64) []byte { return []byte(bench.Payload(n, 200)) }
	one, last := write(1), write(maxEvents-1)
	if len(one) != 200 || !json.Valid(one) {
		t.Fatalf("got %d bytes %q, want 200 of JSON", len(one), one)
	}
	tl := newTally()
	tl.batch(one, last)
	tl.batch(one, []byte("what?"), write(maxEvents))
	if tl.delivered.Load() != 2 || tl.repeated.Load() != 1 || tl.damaged.Load() != 2 || tl.batches.Load() != 2 {
		t.Errorf("got %d delivered, %d repeated, %d damaged in %d batches; want 2, 1, 2 in 2",
			tl.delivered.Load(), tl.repeated.Load(), tl.damaged.Load(), tl.batches.Load())
	}
}

func TestEventsOfAGroupedLotShareAPartition(t *testing.T) {
	t.Parallel()
	grouped, mixed := contender{lot: 128, grouped: true}, contender{lot: 128}
	for n, want := range map[int64][2]int{0: {0, 0}, 127: {0, 27}, 128: {1, 28}, 12800: {0, 0}} {
		if got := [2]int{grouped.partitionOf(n, 100), mixed.partitionOf(n, 100)}; got != want {
			t.Errorf("event %d: got partitions %v, want %v", n, got, want)
		}
	}
}

func TestProcessorTimeOfTheMachineIsRead(t *testing.T) {
	t.Parallel()
	got, err := machineCPU([]byte("cpu  1 2 3 1000 1000 4 5 6 0 0\ncpu0 9 9 9\n"))
	if err != nil || got != 210*time.Millisecond {
		t.Errorf("got %v, %v; want 21 ticks, 210ms", got, err)
	}
	for _, broken := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8 9", "cpu x 2 3 4 5 6 7 8 9"} {
		if _, err := machineCPU([]byte(broken)); err == nil {
			t.Errorf("%q: got no error", broken)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"accepted":128,"evicted":0}`: 128, `{"accepted":0,"results":[]}`: 0, `{"error":"overloaded"}`: 0, "": 0,
	} {
		if got := accepted([]byte(body)); got != want {
			t.Errorf("%q: got %d, want %d", body, got, want)
		}
	}
}

func TestSpreadIsLowMedianHigh(t *testing.T) {
	t.Parallel()
	of := func(s sample) float64 { return s.In }
	odd := measured{Samples: []sample{{In: 3}, {In: 1}, {In: 2}}}
	even := measured{Samples: []sample{{In: 4}, {In: 1}}}
	if a, b := odd.spread(of), even.spread(of); a != (spread{1, 2, 3}) || b != (spread{1, 2.5, 4}) {
		t.Errorf("got %v and %v, want {1 2 3} and {1 2.5 4}", a, b)
	}
}

func TestWrongFlagsAreUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-sides", "kafka"}, {"-rounds", "0"}, {"-payload", "5"}, {"-senders", "-1"}, {"-duration", "soon"}} {
		if code := command(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: got exit %d, want 2", args, code)
		}
	}
}

func TestAServerThatDoesNotStartShowsItsLog(t *testing.T) {
	t.Parallel()
	var progress bytes.Buffer
	args := []string{"-sides", "spillway/1", "-rounds", "1", "-bin", "/bin/false"}
	code := command(t.Context(), args, &bytes.Buffer{}, &progress)
	if code != 1 || !strings.Contains(progress.String(), "the process ended; the end of its log:\n") {
		t.Errorf("got exit %d and %q, want 1 and the end of a log", code, progress.String())
	}
}

func TestReadmeTellsOfEverySide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contenders {
		if !bytes.Contains(text, []byte("| "+c.name+" | ")) {
			t.Errorf("%s has no row of results", c.name)
		}
	}
}

func TestReportHasEverySideInTextAndJSON(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-bin", bin, "-sides", "spillway/128,seed/1", "-rounds", "2", "-duration", "100ms"}
	for _, form := range []string{"text", "json"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			var out, progress bytes.Buffer
			if code := command(t.Context(), append(args[:len(args):len(args)], "-json="+map[string]string{"text": "0", "json": "1"}[form]), &out, &progress); code != 0 {
				t.Fatalf("got exit %d: %s", code, progress.String())
			}
			if form == "text" {
				if !strings.Contains(out.String(), "| spillway/128 ") || !strings.Contains(out.String(), "| seed/1 ") {
					t.Errorf("got %q, want a row a side", out.String())
				}
				return
			}
			var rep report
			if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
				t.Fatal(err)
			}
			if len(rep.Sides) != 2 || len(rep.Sides[0].Samples) != 2 || rep.Machine.CPUs == 0 {
				t.Errorf("got %+v, want two sides of two samples", rep)
			}
		})
	}
}

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "spillway-peers-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}
