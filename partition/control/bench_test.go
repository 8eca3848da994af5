package control_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

// full is a process whose document has as many tokens as it may.
func full(b *testing.B) (p *process, server *redistest.Server) {
	server = redistest.Start(b)
	p = prepare(b, server.URL(), "sw")
	p.must(p.CreateNamespace(ctx, namespace("ns0")))
	client, fields := server.Client(), []any{}
	for i := range control.MaxEntries - 20 {
		if i%1000 == 0 && i > 0 {
			p.must(p.CreateNamespace(ctx, namespace(fmt.Sprint("ns", i/1000))))
		}
		fields = append(fields, fmt.Sprintf("token:ns%d:%x", i/1000, control.HashToken(fmt.Sprint(i))),
			fmt.Sprintf(`{"name":"t%d","description":"a team of the shop","produce":"1000/min","created_ms":1790000000000,"created_by":"alice"}`, i))
	}
	client.HSet(ctx, "sw:{control}:doc", fields...)
	client.HSet(ctx, "sw:{control}:doc", "floor", 1<<20, "version", 1<<20)
	p.must(p.Refresh(ctx))
	if s := p.Snapshot(); len(s.Ignored) > 0 || len(s.Tokens("ns9")) == 0 {
		b.Fatalf("%d tokens, %.200q", len(s.Tokens("ns9")), s.Ignored)
	}
	return p, server
}

// redisTime is how long Redis worked on scripts per iteration, in µs.
func redisTime(b *testing.B, server *redistest.Server, f func()) {
	client := server.Client()
	client.ConfigResetStat(ctx)
	start := time.Now()
	f()
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N), "µs/op-all")
	var us float64
	for _, line := range strings.Split(client.Info(ctx, "commandstats").Val(), "\r\n") {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			_, rest, _ = strings.Cut(rest, "usec=")
			text, _, _ := strings.Cut(rest, ",")
			us, _ = strconv.ParseFloat(text, 64)
		}
	}
	b.ReportMetric(us/float64(b.N), "redis-µs/op")
}

// BenchmarkLook is a look that finds nothing new in a full document, four of which a process
// makes each second.
func BenchmarkLook(b *testing.B) {
	p, server := full(b)
	redisTime(b, server, func() {
		for b.Loop() {
			p.must(p.Refresh(ctx))
		}
	})
}

// BenchmarkRevoke is a revocation in a full document, until this process uses it.
func BenchmarkRevoke(b *testing.B) {
	p, server := full(b)
	redisTime(b, server, func() {
		for b.Loop() {
			p.must(p.CreateToken(ctx, token("ns9", "again")))
			p.must(p.DeleteToken(ctx, "ns9", control.HashToken("again")))
		}
	})
}

// BenchmarkStartOnAFullDocument is the first look of a process.
func BenchmarkStartOnAFullDocument(b *testing.B) {
	_, server := full(b)
	redisTime(b, server, func() {
		for b.Loop() {
			fresh := prepare(b, server.URL(), "sw")
			fresh.must(fresh.Refresh(ctx))
		}
	})
}

// BenchmarkSharedRate takes one job of a rate at a time: one call in 1,000 asks Redis.
func BenchmarkSharedRate(b *testing.B) {
	url, prefix := shared(b)
	p := prepare(b, url, prefix)
	limited := token("", "secret")
	limited.Produce = partition.Rate{Count: 64_000, Per: time.Second}
	p.must(p.CreateTokenIn(ctx, namespace("mail"), limited))
	l := p.Snapshot().Token("mail", limited.Hash).Limiters.Produce
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := l.Take(ctx, 1); err != nil {
			b.Fatal(err)
		}
	}
}
