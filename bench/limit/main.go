// Command limit measures what two rows of bench/run's isolation could be at best: the p99 of small
// requests beside large bodies, at a server that only reads them. It has no Redis, splits nothing
// and stores nothing.
//
//	go run ./bench/limit
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// The load of the rows: see bench/run/hostiles.json.
const (
	bulkConnections = 8
	small           = 200 // bytes
	every           = 2 * time.Millisecond
	requests        = 1000
)

func main() {
	if len(os.Args) > 1 {
		check(serve(os.Args[1]))
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	addr := ln.Addr().String()
	check(ln.Close())
	server := exec.Command(os.Args[0], addr) // #nosec G702 -- itself
	check(server.Start())
	defer func() { _ = server.Process.Kill() }()
	for client := newClient(); post(client, addr, make([]byte, 1)) != nil; {
		time.Sleep(10 * time.Millisecond)
	}
	for _, size := range []int{16 << 20, 1 << 20} {
		alone := p99(addr)
		var bulks atomic.Int64
		var stop atomic.Bool
		var running sync.WaitGroup
		body := make([]byte, size)
		for range bulkConnections {
			running.Go(func() {
				for client := newClient(); !stop.Load(); bulks.Add(1) {
					check(post(client, addr, body))
				}
			})
		}
		beside := p99(addr)
		stop.Store(true)
		running.Wait()
		fmt.Printf("bodies of %d MiB on %d connections: p99 of small requests alone %v, beside %v: %.1f times (%d bodies)\n",
			size>>20, bulkConnections, alone, beside, float64(beside)/float64(alone), bulks.Load())
	}
}

// serve reads bodies and answers what a produce of one entry does.
func serve(addr string) error {
	s := &fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 32 << 20, Handler: func(ctx *fasthttp.RequestCtx) {
		body := make([]byte, ctx.Request.Header.ContentLength())
		if _, err := io.ReadFull(ctx.RequestBodyStream(), body); err != nil {
			ctx.SetStatusCode(fasthttp.StatusBadRequest)
			return
		}
		ctx.SetBodyString(`{"accepted":1}`)
	}}
	return s.ListenAndServe(addr)
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{WriteBufferSize: 64 << 10, MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
}

func post(c *http.Client, addr string, body []byte) error {
	answer, err := c.Post("http://"+addr+"/", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return err
}

// p99 is that of small requests, from when each was due.
func p99(addr string) time.Duration {
	client, entry := newClient(), make([]byte, small)
	took := make([]time.Duration, requests)
	var running sync.WaitGroup
	for i := range took {
		due := time.Now()
		running.Go(func() {
			check(post(client, addr, entry))
			took[i] = time.Since(due)
		})
		time.Sleep(every)
	}
	running.Wait()
	slices.Sort(took)
	return took[requests*99/100]
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
