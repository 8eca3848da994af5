// Command run measures a Spillway binary: it starts a Redis and a server of its
// own, loads them as bench/README.md describes, prints what it saw and exits 1
// when a promise did not hold.
//
//	go build -o bin/spillway ./cmd/spillway && go run ./bench/run
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is main without the process: 0 all held, 1 a promise did not hold or
// the run failed, 2 usage.
func command(ctx context.Context, args []string, out, progress io.Writer) int {
	var s settings
	var scenario string
	var asJSON bool
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&s.bin, "bin", "bin/spillway", "the binary to measure")
	flags.StringVar(&s.redisServer, "redis-server", "redis-server", "the redis-server to start")
	flags.StringVar(&scenario, "scenario", "all", "throughput, memory or all")
	flags.Float64Var(&s.rate, "rate", 10_000, "throughput: requests a second")
	flags.DurationVar(&s.duration, "duration", time.Minute, "throughput: how long")
	flags.IntVar(&s.partitions, "partitions", 100, "throughput: partitions")
	flags.IntVar(&s.payload, "payload", 200, "bytes an entry")
	flags.IntVar(&s.connections, "connections", 64, "kept-alive connections")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one object a scenario")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	scenarios := []struct {
		name string
		run  func(context.Context, settings) (*report, error)
	}{{"throughput", throughput}, {"memory", memory}}

	code, known := 0, scenario == "all"
	for _, sc := range scenarios {
		if scenario != "all" && scenario != sc.name {
			continue
		}
		known = true
		_, _ = fmt.Fprintf(progress, "%s: running\n", sc.name)
		rep, err := sc.run(ctx, s)
		if err != nil {
			_, _ = fmt.Fprintf(progress, "%s: %v\n", sc.name, err)
			return 1
		}
		if asJSON {
			err = json.NewEncoder(out).Encode(rep)
		} else {
			err = rep.print(out)
		}
		if err != nil {
			_, _ = fmt.Fprintf(progress, "%s: print: %v\n", sc.name, err)
			return 1
		}
		if !rep.held() {
			code = 1
		}
	}
	if !known {
		_, _ = fmt.Fprintf(progress, "scenario: %q is not usable: want throughput, memory or all\n", scenario)
		return 2
	}
	return code
}
