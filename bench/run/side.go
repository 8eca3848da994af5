package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// The sides that Spillway is held against run as processes of their own, like
// Spillway: this program, started again with one of these words first.
//
//	noop     a fasthttp server with the settings of Spillway's, whose handler
//	         answers the same bytes and does nothing else
//	produce  the produce script alone, over partition.Store, pipelined
//	drain    the claim and commit scripts alone, likewise
//	bare     RPUSH, LRANGE and LTRIM in place of all scripts
//	receive  a webhook's receiver, which counts
//	jobs     the scripts of jobs alone, over job.Store
var sides = map[string]func(ctx context.Context, args []string, out io.Writer) error{
	"noop": noop, "produce": rawProduce, "drain": rawDrain, "bare": bareCommands, "receive": receive, "jobs": rawJobs,
}

// noop serves until ctx ends.
func noop(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("noop", flag.ContinueOnError)
	listen := flags.String("listen", "", "address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	body := []byte(`{"accepted":1,"evicted":0,"rejected":0,"depth":1234,"capacity":10000,"results":[]}`)
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetContentType("application/json")
			ctx.SetBody(body)
		},
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second,
		MaxRequestBodySize: 1 << 20, ReadBufferSize: 8 << 10, MaxRequestsPerConn: 1 << 20, Concurrency: 2*4096 + 64,
		NoDefaultServerHeader: true, NoDefaultContentType: true, SecureErrorLogMessage: true,
		DisablePreParseMultipartForm: true, CloseOnShutdown: true,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Shutdown() }) // the process ends with it
	defer stop()
	return server.ListenAndServe(*listen)
}

// Shape of the raw sides: on two cores nothing was clearly faster among 1 to 6
// workers, 4 to 32 scripts a pipeline and leases of 1 to 8 batches.
const (
	rawWorkers = 3
	rawGroups  = 16 // produce: scripts a pipeline
	rawLeases  = 4  // drain: scripts a pipeline
	rawBatches = 8  // a lease; most a partition.ClaimRequest asks for by the drain
	rawEntries = 128
)

// rawLoad is what a raw side does.
type rawLoad struct {
	Redis      string
	Partitions int
	Payload    int
	Entries    int64         // produce: stop after these; 0 goes by Duration
	Duration   time.Duration // produce: how long to measure
}

// rawResult is what it prints: one JSON object.
type rawResult struct {
	Entries int64         `json:"entries"`
	Elapsed time.Duration `json:"elapsed_ns"`
	CPU     time.Duration `json:"cpu_ns,omitempty"` // of its process; report says it
}

func (r rawResult) rate() float64 { return float64(r.Entries) / r.Elapsed.Seconds() }

func (l rawLoad) args() []string {
	return []string{"-redis", l.Redis, "-partitions", fmt.Sprint(l.Partitions), "-payload", fmt.Sprint(l.Payload),
		"-entries", fmt.Sprint(l.Entries), "-duration", l.Duration.String()}
}

func parseRaw(args []string) (l rawLoad, err error) {
	flags := flag.NewFlagSet("raw", flag.ContinueOnError)
	flags.StringVar(&l.Redis, "redis", "", "URL")
	flags.IntVar(&l.Partitions, "partitions", 0, "")
	flags.IntVar(&l.Payload, "payload", 0, "bytes")
	flags.Int64Var(&l.Entries, "entries", 0, "")
	flags.DurationVar(&l.Duration, "duration", 0, "")
	return l, flags.Parse(args)
}

// rawProduce runs the script on pipelines of rawGroups partitions. The entries
// are encoded once: what it measures is go-redis and Redis.
func rawProduce(ctx context.Context, args []string, out io.Writer) error {
	l, err := parseRaw(args)
	if err != nil {
		return err
	}
	return l.run(ctx, out, func(store *partition.Store, names []string, stop func(sent int64) bool) (int64, error) {
		now, _ := store.Now()
		payload := []byte(strings.Repeat("x", l.Payload))
		entries := make([][]byte, rawEntries)
		for i := range entries {
			entries[i] = partition.AppendEntry(nil, now, nil, payload)
		}
		var done int64
		for at := 0; !stop(done); at += rawGroups {
			groups := make([]*partition.Group, min(rawGroups, len(names)))
			for i := range groups {
				groups[i] = &partition.Group{Namespace: store.Namespace("default"), Partition: names[(at+i)%len(names)], Entries: entries}
			}
			store.Produce(ctx, groups)
			for _, g := range groups {
				if g.Err != nil || g.Evicted > 0 {
					return done, fmt.Errorf("produce: %w; %d evicted", g.Err, g.Evicted)
				}
				done += int64(g.Accepted)
			}
		}
		return done, nil
	})
}

// rawDrain claims and commits, on pipelines of rawGroups partitions, until
// nothing is left.
func rawDrain(ctx context.Context, args []string, out io.Writer) error {
	l, err := parseRaw(args)
	if err != nil {
		return err
	}
	return l.run(ctx, out, func(store *partition.Store, names []string, _ func(int64) bool) (int64, error) {
		var done int64
		for len(names) > 0 {
			turn := names[:min(rawLeases, len(names))]
			rest := names[len(turn):]
			requests := make([]partition.ClaimRequest, len(turn))
			for i, name := range turn {
				requests[i] = partition.ClaimRequest{Namespace: store.Namespace("default"), Partition: name, MaxBatches: rawBatches}
			}
			claims := store.Claim(ctx, requests, time.Minute)
			var settle []*partition.Commit
			again := rest[:len(rest):len(rest)]
			for _, c := range claims {
				switch {
				case c.Err != nil || c.Expired > 0:
					return done, fmt.Errorf("claim: %w; %d expired", c.Err, c.Expired)
				case c.Lease != nil:
					settle = append(settle, &partition.Commit{
						Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries),
					})
					again = append(again, c.Partition)
				}
			}
			names = again
			store.Commit(ctx, settle)
			for _, s := range settle {
				if s.Err != nil {
					return done, fmt.Errorf("commit: %w", s.Err)
				}
				done += s.Hi - s.Lo
			}
		}
		return done, nil
	})
}

// run shares the partitions out among workers and prints their sum.
func (l rawLoad) run(ctx context.Context, out io.Writer, work func(*partition.Store, []string, func(int64) bool) (int64, error)) error {
	store, err := openStore(l.Redis)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Check(ctx); err != nil {
		return err
	}
	shares := make([][]string, rawWorkers)
	for i := range l.Partitions {
		shares[i%rawWorkers] = append(shares[i%rawWorkers], fmt.Sprint("bench-", i))
	}
	var total atomic.Int64
	errs := make([]error, rawWorkers)
	start := time.Now()
	stop := func(sent int64) bool {
		if l.Entries > 0 {
			return sent >= l.Entries/rawWorkers
		}
		return time.Since(start) >= l.Duration
	}
	var workers sync.WaitGroup
	for i, names := range shares {
		workers.Go(func() {
			n, err := work(store, names, stop)
			total.Add(n)
			errs[i] = err
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(rawResult{Entries: total.Load(), Elapsed: time.Since(start)})
}

// raw runs one of the raw sides against r's Redis and waits for its figures.
func (r *setup) raw(ctx context.Context, side string, l rawLoad) (rawResult, error) {
	l.Redis = r.redisURL
	return r.side(ctx, side, l.args()...)
}

// side runs one of the sides that end by themselves and reads their figures.
func (r *setup) side(ctx context.Context, side string, args ...string) (res rawResult, err error) {
	p, err := startSide(ctx, r.dir, side, func(context.Context) error { return nil }, args...)
	if err != nil {
		return res, err
	}
	defer p.Stop()
	select {
	case <-p.Done:
	case <-ctx.Done():
		return res, ctx.Err()
	}
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(text, &res); err != nil {
		return res, fmt.Errorf("%s: %.500s", side, text)
	}
	return res, nil
}

// startSide starts this program as one of the sides and waits until ready returns nil.
func startSide(ctx context.Context, dir, side string, ready func(context.Context) error, args ...string) (*proc.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return rig.Start(ctx, dir, side, ready, self, append([]string{side}, args...)...)
}
