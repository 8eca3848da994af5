package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// answersInPart are receivers that take some entries of a batch, or say they do.
var answersInPart = []situation{
	{"an entry that is rejected until it is too old: the other 127 come once, and count as delivered", retriedInPart(1 << 30)},
	{"an entry that is rejected twice: the other 127 come once, and all count as delivered", retriedInPart(2)},
	{"127 of 128 rejected for good, in results of 80 KB: they are dead letters", droppedAtLength},
	{"results that are cut short are no delivery", resultsCutShort},
	{"at-most-once: what was never handed over does not count as delivered", mostOnce},
}

// retriedInPart: a receiver takes all but the first, which it rejects so often.
func retriedInPart(times int) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		var rejections atomic.Int64
		hook, err := s.receive(func(d delivery) reply {
			if d.data[0] == `{"n":0}` && rejections.Add(1) <= int64(times) {
				return reply{status: http.StatusOK, body: `{"results":[{"i":0,"result":"retry"}]}`, rejected: []int{0}}
			}
			return reply{status: http.StatusOK}
		})
		if err != nil {
			return err
		}
		v, err := s.serve(ctx, "--sink="+hook.url, "--max-age=6s", "--linger=500ms")
		if err != nil {
			return err
		}
		if err := v.take(ctx, "p", numbered(128)...); err != nil {
			return err
		}
		l, err := v.settled(ctx, 30*time.Second)
		if err != nil {
			return err
		}
		want := int64(128)
		if times > 100 {
			want = 127
		}
		posts, got, taken := hook.counts()
		for n := range 128 {
			key := fmt.Sprintf(`p {"n":%d}`, n)
			if n > 0 && (got[key] != 1 || taken[key] != 1) {
				return fmt.Errorf("entry %d came %d times in %d posts: %+v", n, got[key], posts, l)
			}
		}
		if l.Delivered != want || got[`p {"n":0}`] < 2 {
			return fmt.Errorf("delivered %d, want %d; the rejected entry came %d times: %+v", l.Delivered, want, got[`p {"n":0}`], l)
		}
		return nil
	}
}

// droppedAtLength: an answer may say a lot about each of 128 entries.
func droppedAtLength(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(d delivery) reply {
		a := reply{status: http.StatusOK}
		var rows []string
		for i, data := range d.data {
			if data == `{"n":0}` {
				continue
			}
			a.rejected = append(a.rejected, i)
			rows = append(rows, fmt.Sprintf(`{"i":%d,"result":"drop","reason":"bad_item","message":%q}`, i, strings.Repeat("m", 600)))
		}
		a.body = `{"results":[` + strings.Join(rows, ",") + `]}`
		return a
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--linger=500ms")
	if err != nil {
		return err
	}
	if err := v.take(ctx, "p", numbered(128)...); err != nil {
		return err
	}
	l, err := v.settled(ctx, 20*time.Second)
	if err == nil && (l.Delivered != 1 || l.Dead != 127) {
		err = fmt.Errorf("127 were dropped: %+v", l)
	}
	return err
}

// resultsCutShort: nobody can say what such an answer took.
func resultsCutShort(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(delivery) reply {
		return reply{status: http.StatusOK, headers: map[string]string{"Content-Type": "application/json"}, body: `{"results":[{"i":0,"result":"drop"`}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--linger=500ms", "--max-age=4s")
	if err != nil {
		return err
	}
	if err := v.take(ctx, "p", numbered(128)...); err != nil {
		return err
	}
	l, err := v.settled(ctx, 20*time.Second)
	if err == nil && l.Delivered != 0 {
		err = fmt.Errorf("got %+v", l)
	}
	return err
}

// mostOnce: ten batches, a sink that needs 1.5 s for each, and 4 s to live.
func mostOnce(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(delivery) reply {
		rig.Sleep(ctx, 1500*time.Millisecond)
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--delivery=at-most-once", "--batch=40", "--max-age=4s", "--linger=1s")
	if err != nil {
		return err
	}
	if err := v.take(ctx, "p", numbered(400)...); err != nil {
		return err
	}
	l, err := v.settled(ctx, 30*time.Second)
	if err != nil {
		return err
	}
	// The last Write may still run: what it holds was handed over.
	var got map[string]int
	err = until(ctx, 10*time.Second, func() error {
		_, got, _ = hook.counts()
		if int64(len(got)) != l.Delivered {
			return fmt.Errorf("the sink got %d entries: %+v", len(got), l)
		}
		return nil
	})
	for key, n := range got {
		if n != 1 {
			return fmt.Errorf("%s came %d times at most once: %+v", key, n, l)
		}
	}
	return err
}
