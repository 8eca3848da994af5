// Command game-analytics serves the browser game of this folder and lets simulated
// players play beside it. All of them report to Spillway: the game by the JavaScript
// client, the players by the Go client. README.md of this folder tells the rest.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var s site
	flag.StringVar(&s.listen, "listen", "127.0.0.1:8000", "where the game is served")
	flag.StringVar(&s.sdk, "sdk", "ingest/client/js/reporter.js", "the JavaScript client")
	flag.StringVar(&s.clickHouse, "clickhouse", "http://127.0.0.1:8123", "ClickHouse, for the answers beside the game")
	server := flag.String("spillway", "http://127.0.0.1:8080", "Spillway's data port")
	players := flag.Int("players", 200, "simulated players")
	duration := flag.Duration("for", time.Minute, "how long they play")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, *server, *players, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "game-analytics:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s site, server string, players int, duration time.Duration) error {
	stop, err := s.start()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(os.Stderr, "Play at http://%s/ beside %d simulated players, who go on for %v.\n", s.listen, players, duration)
	total, err := simulate(ctx, server, players, duration)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(total); err != nil {
		return err
	}
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "They are done. The game is served until Ctrl-C.")
		<-ctx.Done()
	}
	return nil
}
