// Command hostile sends a corpus of hostile input to a Spillway binary and
// exits 1 when anything is answered otherwise than documented. It starts a
// Redis and servers of its own; README.md says what the corpus covers.
//
//	go build -o bin/spillway ./cmd/spillway && go run ./bench/hostile
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

func main() { rig.Main(command) }

// command is main without the process: 0 all as documented, 1 not so, 2 usage.
func command(ctx context.Context, args []string, out, progress io.Writer) int {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	flags.SetOutput(progress)
	bin := flags.String("bin", "bin/spillway", "the binary to try")
	redisServer := flags.String("redis-server", "redis-server", "the redis-server to start")
	only := flags.String("only", "", "categories to try, with commas between them; without it all, and what has to hold afterwards")
	keep := flags.Bool("keep", false, "leave logs and files behind, and say where")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	r, err := newSetup(ctx, *bin, *redisServer)
	if err != nil {
		_, _ = fmt.Fprintln(progress, "hostile:", err)
		return 1
	}
	r.keep = *keep
	if *only != "" {
		r.only = strings.Split(*only, ",")
	}
	defer r.close()
	if *keep {
		_, _ = fmt.Fprintln(progress, "logs and files are in", r.dir)
	}
	failed, err := r.try(ctx, out)
	switch {
	case err != nil:
		_, _ = fmt.Fprintln(progress, "hostile:", err)
		return 1
	case failed > 0:
		return 1
	}
	return 0
}

// try runs the corpus and what has to hold afterwards, one line for each
// category and several for each difference. It returns how many differ.
func (r *setup) try(ctx context.Context, out io.Writer) (failed int, err error) {
	began, total := time.Now(), 0
	if err := r.warm(ctx); err != nil {
		return 0, err
	}
	for _, c := range corpus() {
		if r.only != nil && !slices.Contains(r.only, c.name) {
			continue
		}
		at := time.Now()
		var differ []difference
		if err := c.run(ctx, r, func(d difference) { differ = append(differ, d) }); err != nil {
			return failed, fmt.Errorf("%s: %w", c.name, err)
		}
		_, _ = fmt.Fprintf(out, "%-17s %4d rows  %3d differ  %6.2f s\n", c.name, c.count, len(differ), time.Since(at).Seconds())
		for _, d := range differ {
			_, _ = fmt.Fprintf(out, "  %s\n    sent %s\n    got  %s\n    want %s\n", d.row, shorten(d.sent), d.got, d.want)
		}
		total, failed = total+c.count, failed+len(differ)
	}
	after := checks
	if r.only != nil {
		after = nil // they are about the whole corpus
	}
	for _, c := range after {
		if err := c.run(ctx, r); err != nil {
			failed++
			_, _ = fmt.Fprintf(out, "afterwards: %s: NO\n    %v\n", c.name, err)
			continue
		}
		_, _ = fmt.Fprintf(out, "afterwards: %s: yes\n", c.name)
	}
	var acked int64
	for _, s := range r.servers() {
		acked += s.acked
	}
	_, _ = fmt.Fprintf(out, "%d inputs and %d checks, %d differ, %d entries acknowledged, %.1f s\n",
		total, len(after), failed, acked, time.Since(began).Seconds())
	return failed, nil
}

// shorten quotes what was sent, without the middle of a long one.
func shorten(sent string) string {
	const most = 600
	if len(sent) <= most {
		return fmt.Sprintf("%q", sent)
	}
	return fmt.Sprintf("%q … %d bytes … %q", sent[:most/2], len(sent)-most, strings.ToValidUTF8(sent[len(sent)-most/2:], ""))
}
