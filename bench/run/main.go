// Command run measures a Spillway binary: it starts a Redis and a server of its
// own, loads them as bench/README.md describes, prints what it saw and exits 1
// when a promise did not hold.
//
//	go build -o bin/spillway ./cmd/spillway && go run ./bench/run
//
// The table holds Spillway against what its parts allow: rows that miss their
// goal are shown as missed and do not fail the command. Broken accounts do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// needsClickHouse is a scenario that all does not have: it needs a clickhouse-server.
const needsClickHouse = "clickhouse"

func main() { rig.Main(command) }

// command is main without the process: 0 all held, 1 a promise did not hold or
// the run failed, 2 usage.
func command(ctx context.Context, args []string, out, progress io.Writer) int {
	if len(args) > 0 && sides[args[0]] != nil {
		if err := sides[args[0]](ctx, args[1:], out); err != nil {
			_, _ = fmt.Fprintf(progress, "%s: %v\n", args[0], err)
			return 1
		}
		return 0
	}
	s := settings{jobs: tableJobs}
	var scenario string
	var asJSON bool
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&s.bin, "bin", "bin/spillway", "the binary to measure")
	flags.StringVar(&s.redisServer, "redis-server", "redis-server", "the redis-server to start")
	flags.StringVar(&s.wrkPath, "wrk", "wrk", "the wrk that loads row a")
	flags.StringVar(&s.lmstfyServer, "lmstfy", "bin/lmstfy-server", "the lmstfy that jobs are held against; without it those rows are left out")
	flags.StringVar(&scenario, "scenario", "table", "table, throughput, memory, cost, sizing, all of these, or clickhouse")
	flags.StringVar(&s.rows, "rows", "", "table: rows to measure, such as a,sparse, bcd or jobs; without it all of them")
	flags.IntVar(&s.rounds, "rounds", 3, "table, cost: how often each side is measured")
	flags.DurationVar(&s.segment, "segment", 3*time.Second, "table: how long one side is loaded")
	flags.Float64Var(&s.sparseRate, "sparse-rate", 85_000, "table, sparse: entries a second; 0: as fast as they are answered")
	flags.Float64Var(&s.rate, "rate", 10_000, "throughput: requests a second")
	flags.DurationVar(&s.duration, "duration", time.Minute, "throughput: how long")
	flags.IntVar(&s.partitions, "partitions", 100, "partitions, where a row does not say")
	flags.IntVar(&s.payload, "payload", 200, "bytes an entry")
	flags.IntVar(&s.connections, "connections", 64, "throughput, memory: kept-alive connections")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one object a scenario")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	scenarios := []struct {
		name string
		run  func(context.Context, settings) (scenarioReport, error)
	}{{"throughput", throughput}, {"memory", memory}, {"cost", cost}, {"sizing", sizing}, {needsClickHouse, inserts}}

	if _, err := chosen(s.rows); err != nil {
		_, _ = fmt.Fprintln(progress, err)
		return 2
	}
	if s.rounds < 1 || s.segment <= 0 || s.sparseRate < 0 {
		_, _ = fmt.Fprintln(progress, "rounds, segment, sparse-rate: want 1 or more, more than 0s, 0 or more")
		return 2
	}

	code, known := 0, scenario == "all"
	if scenario == "all" || scenario == "table" {
		known = true
		if code = printTable(ctx, s, asJSON, out, progress); ctx.Err() != nil {
			return code
		}
	}
	for _, sc := range scenarios {
		if scenario != sc.name && (scenario != "all" || sc.name == needsClickHouse) {
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
			colour := isTerminal(out)
			err = rep.sheet(colour).print(out, colour)
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
		_, _ = fmt.Fprintf(progress, "scenario: %q is not usable: want table, throughput, memory, cost, sizing, all or clickhouse\n", scenario)
		return 2
	}
	return code
}

// printTable measures the table and prints what there is of it.
func printTable(ctx context.Context, s settings, asJSON bool, out, progress io.Writer) int {
	t, failed := compare(ctx, s, progress)
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(t)
	} else {
		colour := isTerminal(out)
		err = t.sheet(colour).print(out, colour)
	}
	if err := errors.Join(failed, err); err != nil {
		_, _ = fmt.Fprintf(progress, "table: %v\n", err)
		return 1
	}
	if !t.held() {
		return 1
	}
	return 0
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
