// Command peers measures Spillway beside what one would otherwise build its job
// on: the seeds' script per event, Redis Streams, asynq's groups and NATS
// JetStream. All sides run on this machine in the same run, by turns, with the
// same events; README.md has the method and the figures.
//
//	cd bench/peers && go run .
//
// It is a module of its own, so that no peer enters Spillway's.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

func main() { rig.Main(command) }

// command is main without the process: 0 measured, 1 the run failed, 2 usage.
func command(ctx context.Context, args []string, out, progress io.Writer) int {
	var c conditions
	var sides string
	var rounds int
	var asJSON bool
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&c.spillway, "bin", "", "the Spillway binary; empty builds the one of this repository")
	flags.StringVar(&c.redisServer, "redis-server", "redis-server", "the redis-server to start")
	flags.DurationVar(&c.duration, "duration", 4*time.Second, "how long each side is loaded in a round")
	flags.IntVar(&c.senders, "senders", 0, "concurrent senders of every side; 0 the number that suits each")
	flags.IntVar(&c.partitions, "partitions", 100, "partitions the events are spread over")
	flags.IntVar(&c.payload, "payload", 200, "bytes an event")
	flags.IntVar(&c.capacity, "capacity", 65536, "newest events each side keeps of a partition, where it can")
	flags.IntVar(&rounds, "rounds", 3, "turns of each side")
	flags.StringVar(&sides, "sides", strings.Join(names(contenders), ","), "what to measure")
	flags.BoolVar(&asJSON, "json", false, "print JSON with every single measurement")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(sides)
	if err == nil {
		err = c.validate(rounds)
	}
	if err != nil {
		_, _ = fmt.Fprintln(progress, err)
		return 2
	}
	rep, err := run(ctx, c, chosen, rounds, progress)
	if err == nil {
		if asJSON {
			enc := json.NewEncoder(out)
			enc.SetIndent("", "  ")
			err = enc.Encode(rep)
		} else {
			err = rep.print(out)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintf(progress, "peers: %v\n", err)
		return 1
	}
	return 0
}

// run gives every side its turn, round after round, so that whatever else the
// machine does meets all of them alike.
func run(ctx context.Context, c conditions, chosen []contender, rounds int, progress io.Writer) (*report, error) {
	if c.spillway == "" {
		dir, err := os.MkdirTemp("", "spillway-peers-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if c.spillway, err = buildSpillway(ctx, dir); err != nil {
			return nil, err
		}
	}
	rep := newReport(ctx, c, chosen, rounds)
	for round := range rounds {
		for i, side := range chosen {
			s, err := measure(ctx, side, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.name, err)
			}
			_, _ = fmt.Fprintf(progress, "round %d/%d  %-20s in %8.0f/s  end to end %8.0f/s  lost %d  others' CPU %.0f %%\n",
				round+1, rounds, side.name, s.In, s.EndToEnd, s.Lost, 100*s.Others)
			rep.Sides[i].Samples = append(rep.Sides[i].Samples, s)
		}
	}
	return rep, nil
}

func buildSpillway(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "spillway")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin, "./cmd/spillway")
	cmd.Dir = filepath.Join("..", "..") // another module, so it cannot be named from here
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build spillway: %w\n%s", err, text)
	}
	return bin, nil
}

func names(list []contender) []string {
	var all []string
	for _, c := range list {
		all = append(all, c.name)
	}
	return all
}

func choose(list string) ([]contender, error) {
	var chosen []contender
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("sides: %q is not one: want some of %s", name, strings.Join(names(contenders), ","))
		}
		chosen = append(chosen, contenders[i])
	}
	return chosen, nil
}
