package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

const (
	announcers = 1000
	// budget is --max-inflight-bytes; perAnnouncer is what a connection may hold
	// beside it: its buffers, its goroutines and a small body.
	budget       = 20 << 20
	perAnnouncer = 64 << 10
)

// announced are connections that say much and send little. What they only
// announce must not be allocated, beyond the bytes that may be in flight.
var announced = []situation{
	{"1,000 bodies of 1 MiB announced, a byte sent", announce(one, "Content-Length: 1048576\r\n\r\nx")},
	{"1,000 chunks of 1 MiB announced, a byte sent", announce(one, "Transfer-Encoding: chunked\r\n\r\n100000\r\nx")},
	{"1,000 bodies announced by strangers", announce(one, "Content-Length: 1048576\r\n\r\nx", "--config", "TOKENS")},
	{"1,000 bodies announced, half of each sent", announce(one, "Content-Length: 1048576\r\n\r\n"+x(512<<10))},
	{"1,000 bodies of SDKs announced, half of each sent", announce(posthog, "Content-Length: 1048576\r\n\r\n"+x(512<<10))},
}

func announce(path, rest string, flags ...string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		if len(flags) > 0 {
			file, err := s.file("tokens.yaml", "namespaces: {default: {sink: \"null:\", tokens: [\""+hashOf(mineCanary)+"\"]}}\n")
			if err != nil {
				return err
			}
			flags = []string{"--config", file}
		} else {
			flags = []string{"--sink=null:"}
		}
		v, err := s.serve(ctx, append(flags, fmt.Sprintf("--max-inflight-bytes=%d", budget))...)
		if err != nil {
			return err
		}
		before, err := v.RSSPeak()
		if err != nil {
			return err
		}
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for range announcers {
			c, err := net.DialTimeout("tcp", v.data, patience)
			if err != nil {
				return err
			}
			conns = append(conns, c)
			// A server may answer and hang up before all is sent.
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: x\r\n"+rest)
		}
		if err := v.still(ctx); err != nil {
			return err
		}
		after, err := v.RSSPeak()
		if err != nil {
			return err
		}
		if grown := after - before; grown > 2*budget+announcers*perAnnouncer {
			return fmt.Errorf("memory grew by %d MB under a budget of %d MB", grown>>20, budget>>20)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		return until(ctx, 15*time.Second, func() error {
			n, err := v.metric(ctx, "spillway_ingest_inflight_bytes")
			if err == nil && n != 0 {
				err = fmt.Errorf("%v bytes are still in flight", n)
			}
			return err
		})
	}
}

// still waits until the peak of a server's memory has not moved for a second.
func (v *server) still(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 9*time.Second) // shorter than --read-timeout
	defer cancel()
	last, since := int64(0), time.Now()
	for time.Since(since) < time.Second && ctx.Err() == nil {
		rig.Sleep(ctx, 50*time.Millisecond)
		now, err := v.RSSPeak()
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
	}
	return nil
}
