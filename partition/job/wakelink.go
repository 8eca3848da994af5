package job

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/lifecycle"
)

// A wakeLink is one connection that subscribes. It ends with its first error; then Wakes
// makes another one. The client would reconnect by itself, and not say that messages may
// have been missed.
type wakeLink struct {
	wakes  *Wakes
	addr   string
	pubsub *redis.PubSub
	shards bool // SSUBSCRIBE
	change lifecycle.Signal
	todo   []*wanted   // to subscribe or to unsubscribe; under the lock of wakes
	heard  atomic.Bool // since the last ping
	err    chan error  // of the reader
}

func newWakeLink(w *Wakes, client *redis.Client, addr string) *wakeLink {
	l := &wakeLink{
		wakes:  w,
		addr:   addr,
		pubsub: client.Subscribe(context.Background()),
		shards: w.store.backend.Cluster(),
		change: lifecycle.NewSignal(),
		err:    make(chan error, 1),
	}
	return l
}

// add has a queue subscribed, or unsubscribed. The lock of wakes is held.
func (l *wakeLink) add(e *wanted) {
	l.todo = append(l.todo, e)
	l.change.Ring()
}

// run writes what has to be subscribed, and reads until an error.
func (l *wakeLink) run(ctx context.Context) {
	var reading sync.WaitGroup
	err := l.write(ctx, &reading)
	_ = l.pubsub.Close()
	reading.Wait()
	if ctx.Err() == nil {
		l.wakes.store.backend.ReloadClusterMap(ctx)
	}
	l.wakes.lost(ctx, l, err)
}

var errSilent = errors.New("the connection that hears wakes is silent")

func (l *wakeLink) write(ctx context.Context, reading *sync.WaitGroup) error {
	ping := time.NewTicker(wakesPing)
	defer ping.Stop()
	l.heard.Store(true)
	started := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-l.err:
			return err
		case <-l.change:
			err = l.send(ctx)
		case <-ping.C:
			if !l.heard.Swap(false) {
				return errSilent
			}
			err = l.pubsub.Ping(ctx)
		}
		if err != nil {
			return err
		}
		if !started {
			started = true
			reading.Go(func() { l.read(ctx) })
		}
	}
}

// read takes messages until an error.
func (l *wakeLink) read(ctx context.Context) {
	for {
		message, err := l.pubsub.Receive(ctx)
		if err == nil {
			l.heard.Store(true)
			err = l.wakes.received(l, message)
		}
		if err != nil {
			l.err <- err
			return
		}
	}
}

// maxChannels is how many channels one command subscribes.
const maxChannels = 1000

// send subscribes and unsubscribes what has to be.
func (l *wakeLink) send(ctx context.Context) error {
	subscribe, unsubscribe := l.pending()
	join, leave := l.pubsub.Subscribe, l.pubsub.Unsubscribe
	if l.shards {
		join, leave = l.pubsub.SSubscribe, l.pubsub.SUnsubscribe
	}
	if err := each(ctx, subscribe, join); err != nil {
		return err
	}
	return each(ctx, unsubscribe, leave)
}

// each runs a command for all channels. On a Redis Cluster all channels of a command have to be
// of one shard.
func each(ctx context.Context, channels map[*shard][]string,
	run func(context.Context, ...string) error) error {
	for _, list := range channels {
		for part := range slices.Chunk(list, maxChannels) {
			if err := run(ctx, part...); err != nil {
				return err
			}
		}
	}
	return nil
}

// pending are the channels to subscribe and to unsubscribe, by shard, which count as sent.
func (l *wakeLink) pending() (subscribe, unsubscribe map[*shard][]string) {
	w := l.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	subscribe, unsubscribe = map[*shard][]string{}, map[*shard][]string{}
	for _, e := range l.todo {
		switch {
		case e.link != l || w.entries[e.channel] != e:
		case !e.sent && e.wants == 0: // it was wanted for a moment only
			delete(w.entries, e.channel)
		case !e.sent:
			e.sent = true
			subscribe[e.sh] = append(subscribe[e.sh], e.channel)
		case e.confirmed && !e.leaving && e.wants == 0:
			e.leaving = true
			unsubscribe[e.sh] = append(unsubscribe[e.sh], e.channel)
		}
	}
	l.todo = nil
	return subscribe, unsubscribe
}
