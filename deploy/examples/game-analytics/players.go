package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
)

// trainShare of the players sit in a train: there is no network for most of the time. What they
// cannot send in four attempts, or within trainAge, is dropped by their client, which reports
// that.
const (
	trainShare = 0.1
	trainAge   = 4 * time.Second
)

// simulate lets players play, and returns the sum of their clients' counts.
func simulate(ctx context.Context, server string, players int,
	duration time.Duration) (total spillway.Stats, err error) {
	playing, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	total.Dropped = map[spillway.Reason]int64{}
	shared := &http.Transport{MaxIdleConnsPerHost: 64}
	var all sync.WaitGroup
	for i := range players {
		all.Go(func() {
			p := &player{name: fmt.Sprintf("player-%04d", i), ctx: playing}
			s, err := p.play(server, shared, float64(i) < float64(players)*trainShare)
			mu.Lock()
			defer mu.Unlock()
			total.Reported, total.Acked, total.Pending = total.Reported+s.Reported, total.Acked+s.Acked, total.Pending+s.Pending
			for reason, n := range maps.All(s.Dropped) {
				total.Dropped[reason] += n
			}
			errs = append(errs, err)
		})
	}
	all.Wait()
	return total, errors.Join(errs...)
}

// A player plays levels until its context ends.
type player struct {
	name   string
	ctx    context.Context
	client *spillway.Reporter
}

// play reports a session to its end.
func (p *player) play(server string, transport http.RoundTripper,
	inTrain bool) (spillway.Stats, error) {
	cfg := spillway.ReporterConfig{Namespace: "game", Transport: transport, OnDrop: func(reason spillway.Reason, n int64) {
		p.report("client_dropped", map[string]any{"reason": reason, "n": n})
	}}
	if inTrain {
		cfg.Transport, cfg.MaxAge = &train{transport: transport}, trainAge
	}
	var err error
	if p.client, err = spillway.NewReporter(server, cfg); err != nil {
		return spillway.Stats{}, err
	}
	p.report("session_start", nil)
	skill := 0.5 + rand.Float64()/2
	for level := 1; p.wait(); {
		p.report("level_start", map[string]any{"level": level})
		if !p.wait() {
			break
		}
		if rand.Float64() < skill {
			p.report("level_complete", map[string]any{"level": level, "score": rand.IntN(1000)})
			level++
		} else {
			p.report("level_failed", map[string]any{"level": level})
		}
		if rand.Float64() < 0.02 {
			p.report("purchase", map[string]any{"sku": "golden-bucket", "cents": 499})
		}
	}
	p.report("session_end", nil)
	closing, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 15*time.Second)
	defer cancel()
	err = p.client.Close(closing)
	if inTrain {
		err = nil // what a tunnel left over is in the counts
	}
	return p.client.Stats(), err
}

// wait waits for as long as a player takes. It is false when the player has to go.
func (p *player) wait() bool {
	select {
	case <-p.ctx.Done():
		return false
	case <-time.After(time.Duration(200+rand.IntN(800)) * time.Millisecond):
		return true
	}
}

// report is what a game would write around the client. The partition is the player, so
// that each player's events stay in order.
func (p *player) report(event string, values map[string]any) {
	all := map[string]any{"event": event, "player": p.name, "platform": "simulated"}
	maps.Copy(all, values)
	payload, err := json.Marshal(all)
	if err != nil {
		return // strings and numbers always encode
	}
	// What can never be sent is counted in Stats, as all else that is dropped.
	_ = p.client.Report(p.name, payload)
}

// A train is a network that takes one request of seven.
type train struct {
	transport http.RoundTripper
	requests  atomic.Int64
}

func (t *train) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.requests.Add(1)%7 != 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errors.New("no network in the tunnel")
	}
	return t.transport.RoundTrip(r)
}
