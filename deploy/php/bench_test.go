//go:build php

package php

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// benchJobs is how many no-op jobs a side does in a turn.
const benchJobs = 2000

// One child, whose jobs this program claims and settles with Spillway's scripts, ÷ the
// library's own worker. Both read the same Redis; the settlement of a job and the claim of
// the next are one round trip. An iteration is a turn of each:
//
//	go test -tags php -run '^$' -bench . -benchtime 5x ./deploy/php
func BenchmarkChildBesideTheLibrarysWorker(b *testing.B) {
	for _, f := range []flavor{think3, think2, laravel} {
		b.Run(f.name, func(b *testing.B) {
			p := open(b, f)
			p.env = append(p.env, "SEEN=")
			var ours, theirs, ratios []float64
			for b.Loop() {
				o, t := p.benchChild(b), p.benchWorker(b)
				ours, theirs, ratios = append(ours, o), append(theirs, t), append(ratios, o/t)
			}
			b.ReportMetric(median(ours), "child-jobs/s")
			b.ReportMetric(median(theirs), "worker-jobs/s")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func (p *project) pushQuiet(b *testing.B) {
	b.Helper()
	p.push(b, pushed{Class: "Quiet", Data: map[string]any{"n": 1}, Count: benchJobs})
}

// benchChild is the jobs a second of one child.
func (p *project) benchChild(b *testing.B) float64 {
	b.Helper()
	ctx := context.Background()
	p.pushQuiet(b)
	c := p.start(b, 3)
	must(b, settle.Load(ctx, p.redis).Err())
	began := time.Now()
	d := p.claim(b)
	for range benchJobs - 1 {
		if a := c.run(b, d); a.Do != "delete" {
			b.Fatalf("got %+v", a)
		}
		pipe := p.redis.Pipeline()
		settled := settle.EvalSha(ctx, pipe, p.keys(), p.first, p.counted, p.notify, 0, d.seq, "ack", 0)
		claimed := claim.EvalSha(ctx, pipe, p.claimKeys(), p.claimArgs()...)
		_, err := pipe.Exec(ctx)
		must(b, err)
		if reply, err := settled.Slice(); err != nil || number(reply[1]) != 4 {
			b.Fatalf("settled %v, %v", reply, err)
		}
		d = p.claimed(b, claimed)
	}
	p.settle(b, d, c.run(b, d))
	rate := benchJobs / time.Since(began).Seconds()
	_ = c.in.Close()
	_ = c.cmd.Wait()
	return rate
}

// benchWorker is the jobs a second of the library's worker, from its first job on.
func (p *project) benchWorker(b *testing.B) float64 {
	b.Helper()
	ctx := context.Background()
	p.pushQuiet(b)
	cmd := p.php(b, append(slices.Clone(p.worker), p.queue)...)
	cmd.Stderr = os.Stderr
	must(b, cmd.Start())
	left := int64(benchJobs)
	redistest.Until(b, time.Minute, "the worker works", func() bool {
		left = p.redis.LLen(ctx, p.key).Val()
		return left < benchJobs
	})
	took := redistest.Until(b, time.Minute, "the jobs are done", func() bool {
		return p.redis.LLen(ctx, p.key).Val() == 0 && p.redis.ZCard(ctx, p.key+":reserved").Val() == 0
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return float64(left) / took.Seconds()
}
