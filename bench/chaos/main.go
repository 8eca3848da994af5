// Command chaos breaks a Spillway and checks from outside whether it kept its
// word: it starts a redis-server and several servers of its own, loads them,
// kills, freezes and cuts what a seed tells it to, and holds what clients, sink
// and store saw against the checks of package check.
//
//	go build -o bin/spillway ./cmd/spillway && go run ./bench/chaos -seed 1 -duration 30s
//
// It exits 0 when every check held, 1 when one did not or the run failed, 2 for
// usage. README.md says what is injected and what is checked.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// settings are the command's flags, but for what the plan is made of.
type settings struct {
	bin, redisServer string
	clock            string        // library that steps the clock of redis-server; only plans with such steps need it
	quiet            time.Duration // how long the servers get to drain after the last fault
	settle           time.Duration // how long idle servers get to give back what they took
}

func main() { rig.Main(command) }

func command(ctx context.Context, args []string, out, progress io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(progress)
	seed := flags.Uint64("seed", 1, "of the plan: the same one plays the same faults")
	seeds := flags.Int("seeds", 1, "how many runs, each with the next seed")
	duration := flags.Duration("duration", 30*time.Second, "how long a run is loaded and broken")
	only := flags.String("only", "", "kinds of faults, such as kill,lose-replies; without it all of them")
	cluster := flags.Bool("cluster", false, "three masters with a replica each, and the faults that need them; -only=failover and -only=move-slots imply it")
	fsync := flags.String("fsync", "", "Redis's appendfsync, or none for no append-only file; the seed says no or always, with which a kill loses nothing")
	verbose := flags.Bool("v", false, "say every fault on stderr")
	flags.StringVar(&s.bin, "bin", "bin/spillway", "the binary to break")
	// Back-offs of failed partitions pass 10s only after many failures.
	flags.DurationVar(&s.quiet, "quiet", time.Minute, "how long the servers get to drain after the last fault")
	// fasthttp keeps its workers for 10s.
	flags.DurationVar(&s.settle, "settle", 15*time.Second, "how long idle servers get to give back what they took")
	flags.StringVar(&s.redisServer, "redis-server", "redis-server", "the redis-server to start")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	kinds, unknown := parseKinds(*only)
	if !slices.Contains([]string{"", "no", "always", "everysec", "none"}, *fsync) {
		_, _ = fmt.Fprintln(progress, "fsync: want no, always, everysec or none")
		return 2
	}
	if *duration < 3*time.Second || *seeds < 1 || unknown != "" {
		_, _ = fmt.Fprintf(progress, "duration, seeds, only: want 3s or more, 1 or more, some of %s\n", strings.Join(kindNames(), ","))
		return 2
	}
	var err error
	if s.bin, err = filepath.Abs(s.bin); err != nil {
		_, _ = fmt.Fprintf(progress, "bin: %v\n", err)
		return 2
	}
	say := func(string, ...any) {}
	if *verbose {
		var one sync.Mutex // several faults last at a time
		say = func(format string, args ...any) {
			one.Lock()
			defer one.Unlock()
			_, _ = fmt.Fprintf(progress, format+"\n", args...)
		}
	}
	if len(kinds) == 0 || slices.Contains(kinds, check.KindClockStep) {
		if s.clock, err = proc.BuildClock(ctx); err != nil {
			_, _ = fmt.Fprintf(progress, "no clock steps are played: %v\n", err)
		}
	}
	code := 0
	var all total
	for i := range *seeds {
		p := newPlanOn(*cluster || needsCluster(kinds), *seed+uint64(i), *duration, kinds)
		if *fsync != "" {
			p.fsync, p.flags = *fsync, "-fsync="+*fsync
			p.withWitness()
		}
		if *cluster {
			p.flags = strings.TrimSpace(p.flags + " -cluster")
		}
		if len(kinds) > 0 {
			p.flags = strings.TrimSpace(p.flags + " -only=" + *only)
		}
		if s.clock == "" {
			p.withoutSteps()
		}
		res, err := chaos(ctx, s, p, say)
		if err != nil {
			_, _ = fmt.Fprintf(progress, "seed %d: %v\n", p.seed, err)
			return 1
		}
		res.print(out)
		all.add(res)
		if len(res.violations) > 0 {
			code = 1
		}
	}
	if *seeds > 1 {
		all.print(out)
	}
	return code
}

// parseKinds splits a list of fault kinds, and names one that is none.
func parseKinds(list string) (kinds []string, unknown string) {
	for name := range strings.SplitSeq(list, ",") {
		switch {
		case name == "":
		case !slices.Contains(kindNames(), name):
			return nil, name
		default:
			kinds = append(kinds, name)
		}
	}
	return kinds, ""
}
