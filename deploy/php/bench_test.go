//go:build php

package php

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
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

// Claims of 16, acked together, ÷ the library's own worker, which does no-op jobs: by the store, where
// the acks of the last and the next claim are one round trip, and over HTTP, where they are two requests
// of one connection. The goal is 8 by the store; think-queue 2 asks little of Redis, so its worker is the
// quickest, and ours is as quick with each.
func BenchmarkClaimsBesideTheLibrarysWorker(b *testing.B) {
	for _, f := range []flavor{think3, think2, laravel} {
		b.Run(f.name, func(b *testing.B) {
			p := open(b, f)
			p.env = append(p.env, "SEEN=")
			m := newMixed(b, p, 0)
			over := &blocking{mixed: m, data: p.serve(b)}
			var byStore, byHTTP []float64
			for b.Loop() {
				t := p.benchWorker(b)
				byStore = append(byStore, p.benchClaims(b, m.claimAll)/t)
				byHTTP = append(byHTTP, p.benchClaims(b, over.claimAll)/t)
			}
			b.ReportMetric(median(byStore), "store-ratio")
			b.ReportMetric(median(byHTTP), "http-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const claimSize = 16

// benchClaims is the jobs a second of claims.
func (p *project) benchClaims(b *testing.B, all func(testing.TB)) float64 {
	b.Helper()
	p.pushQuiet(b)
	began := time.Now()
	all(b)
	rate := benchJobs / time.Since(began).Seconds()
	if n := p.redis.Exists(context.Background(), p.key, p.key+":reserved").Val(); n != 0 {
		b.Fatal("jobs are left")
	}
	return rate
}

// claimAll claims and acks what is ready.
func (m *mixed) claimAll(t testing.TB) {
	t.Helper()
	lane := m.store.NewLane()
	for acks, more := []*job.Ack(nil), true; more; {
		c := &job.Claim{Namespace: m.ns, Queues: []string{m.queue}, TTR: time.Minute, Count: claimSize}
		m.store.Run(context.Background(), lane, &job.Batch{Acks: acks, Claims: []*job.Claim{c}})
		must(t, c.Err)
		acks, more = acks[:0], len(c.Jobs) > 0
		for i := range c.Jobs {
			acks = append(acks, &job.Ack{Namespace: m.ns, Queue: m.queue, Ref: c.Jobs[i].Ref})
		}
	}
}

// claimAll is the same over HTTP.
func (b *blocking) claimAll(t testing.TB) {
	t.Helper()
	for {
		jobs, err := b.request(context.Background(), fmt.Sprintf("claim?ttr=60s&count=%d", claimSize), "")
		must(t, err)
		if len(jobs) == 0 {
			return
		}
		var acks strings.Builder
		for _, j := range jobs {
			fmt.Fprintf(&acks, `{"id":"%s","attempt":%d,"do":"ack"}`+"\n", j.ID, j.Attempt)
		}
		_, err = b.request(context.Background(), "settle", acks.String())
		must(t, err)
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
		settled := settle.EvalSha(ctx, pipe, p.keys(), p.counted, p.notify, d.seq, "ack", 0)
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
