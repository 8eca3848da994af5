//go:build php

package php

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// A worker of PHP that waits by BLPOP, its block_for, and a claim of ours that waits share a queue, into which
// PHP and we push in turn, one job at a time. Each is taken by one of them, and none sleeps beside the other.
func TestAWorkerThatBlocksAndAClaimThatWaitsShareAQueue(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.env = append(p.env, "BLOCK_FOR=2")
		m := newMixed(t, p, 0)
		b := &blocking{mixed: m, data: p.serve(t), pusher: p.pusher(t)}
		worker := b.blocks(t)
		ctx, stop := context.WithCancel(context.Background())
		var claiming sync.WaitGroup
		claiming.Go(func() { b.claims(ctx) })
		defer claiming.Wait()
		defer stop()
		const both, alone = 200, 20
		b.pushInTurn(t, both)
		t.Logf("%d by us, %d by PHP; the slowest was taken after %v", b.taken.Load(), p.count(t, ran), b.slowest)
		if p.app == "laravel" { // it waits by notifications. One that it got and does nothing with is no job
			must(t, worker.Process.Signal(syscall.SIGSTOP))
		} else { // it waits by the jobs: what it got is its own
			_ = worker.Process.Kill()
			_ = worker.Wait()
		}
		b.pushInTurn(t, alone)
		if n := b.taken.Load() + int64(p.count(t, ran)); n != both+alone {
			t.Errorf("%d jobs were done, of %d: PHP's worker does nothing, and we are beside it", n, both+alone)
		}
		stop()
		claiming.Wait()
		before := b.taken.Load()
		if p.app == "laravel" {
			must(t, worker.Process.Signal(syscall.SIGCONT))
		} else {
			b.blocks(t)
		}
		b.pushInTurn(t, alone)
		if n := p.count(t, ran) + int(b.taken.Load()); n != both+2*alone || b.taken.Load() != before {
			t.Errorf("%d jobs were done, of %d", n, both+2*alone)
		}
	}, think3, laravel) // think-queue 2 has no block_for
}

// blocking is a queue with its two consumers, one job at a time.
type blocking struct {
	*mixed
	data    string // where the service listens
	pusher  io.Writer
	sent    int
	taken   atomic.Int64 // by us
	slowest time.Duration
}

// pusher is a program of the library that pushes what is written to it.
func (p *project) pusher(t testing.TB) io.Writer {
	t.Helper()
	cmd := p.php(t, "push.php")
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return in
}

// blocks starts a worker of the library.
func (b *blocking) blocks(t testing.TB) *exec.Cmd {
	t.Helper()
	worker := b.php(t, append(slices.Clone(b.worker), b.queue)...)
	must(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })
	return worker
}

// pushInTurn pushes n jobs, by PHP and by us in turn, each once the one before was done.
func (b *blocking) pushInTurn(t testing.TB, n int) {
	t.Helper()
	for range n {
		b.pushAndWait(t)
	}
}

// pushAndWait pushes a job and waits until it was done, by whomever.
func (b *blocking) pushAndWait(t testing.TB) {
	t.Helper()
	b.sent++
	data := map[string]any{"acts": []string{"delete"}, "n": b.sent}
	if b.sent%2 == 0 {
		must(t, json.NewEncoder(b.pusher).Encode(pushed{Class: "Note", Data: data, Count: 1, Queue: b.queue}))
	} else {
		class := map[string]string{"laravel": `App\Jobs\Note@fire`}[b.app]
		if class == "" {
			class = `app\job\Note`
		}
		body, err := json.Marshal(map[string]any{"job": class, "data": data})
		must(t, err)
		answer, err := http.Post("http://"+b.data+"/v1/shop/"+b.queue, "application/json", strings.NewReader(string(body)))
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Fatalf("publish: %s", answer.Status)
		}
	}
	took := redistest.Until(t, patience, "the job is done", func() bool {
		return int(b.taken.Load())+b.count(t, ran) >= b.sent
	})
	b.slowest = max(b.slowest, took)
}

// claims waits for a job and acks it, over and over.
func (b *blocking) claims(ctx context.Context) {
	for ctx.Err() == nil {
		jobs, err := b.request(ctx, "claim?wait=60s&ttr=60s", "")
		if err != nil && ctx.Err() == nil {
			b.t.Errorf("claim: %v", err)
			return
		}
		for _, j := range jobs {
			settled, err := b.request(context.Background(), "settle", fmt.Sprintf(`{"id":"%s","attempt":%d,"do":"ack"}`, j.ID, j.Attempt))
			if err != nil || len(settled) != 1 || settled[0].State != "acked" {
				b.t.Errorf("settle: %+v, %v", settled, err)
			}
			b.taken.Add(1)
		}
	}
}

// item is a job, or what became of one.
type item struct {
	ID, State string
	Attempt   int
}

func (b *blocking) request(ctx context.Context, path, body string) ([]item, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.data+"/v1/shop/"+b.queue+"/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || answer.StatusCode != 200 {
		return nil, fmt.Errorf("%s: %s, %w", answer.Status, text, err)
	}
	var said struct{ Jobs, Results []item }
	err = json.Unmarshal([]byte(text), &said)
	return append(said.Jobs, said.Results...), err
}
