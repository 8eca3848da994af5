package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// damage is what somebody does to the keys of a namespace behind our back. The
// account has to stay exact: nothing is lost but what vanished.
var damage = []situation{
	{"HDEL head of a waiting partition, then an overflow", fieldGone("head", false)},
	{"HDEL tail of a waiting partition, then an overflow", fieldGone("tail", false)},
	{"HDEL head and tail of a waiting partition, then an overflow", fieldGone("head tail", false)},
	{"HDEL head of a leased partition, then an overflow", fieldGone("head", true)},
	{"HDEL tail of a leased partition, then an overflow", fieldGone("tail", true)},
	{"HDEL from of a leased partition, then an overflow", fieldGone("from", true)},
	{"HDEL to of a leased partition, then an overflow", fieldGone("to", true)},
	{"a foreign value for dead letters: other partitions settle, /readyz tells, and it heals", foreignDead},
	{"a foreign value for a list: the neighbours in one request are stored", foreignPartition("q")},
	{"a foreign value for a hash: the neighbours in one request are stored", foreignPartition("m")},
}

// fieldGone: five entries wait, or are with a sink; a field of the hash goes;
// three more come, where there is room for five.
func fieldGone(fields string, leased bool) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		hook, err := s.receive(func(d delivery) reply {
			if d.number == 0 && leased {
				rig.Sleep(ctx, 1500*time.Millisecond)
			}
			return reply{status: http.StatusOK}
		})
		if err != nil {
			return err
		}
		flags := []string{"--sink=" + hook.url, "--capacity=5", "--linger=1s", "--sink-timeout=3s", "--lease=5s", "--max-age=30s"}
		role := "--role=ingest" // nobody takes them before the overflow
		if leased {
			role = "--role=all"
		}
		v, err := s.serve(ctx, append(flags, role)...)
		if err != nil {
			return err
		}
		if err := v.take(ctx, "p", numbered(4)...); err != nil { // fewer than a full batch
			return err
		}
		if leased {
			if err := until(ctx, 10*time.Second, func() error {
				if posts, _, _ := hook.counts(); posts == 0 {
					return fmt.Errorf("the sink has nothing yet")
				}
				return nil
			}); err != nil {
				return err
			}
		}
		gone, err := s.client.HDel(ctx, "sw:{default.0}:m:p", strings.Fields(fields)...).Result()
		if err != nil || gone == 0 {
			return fmt.Errorf("HDEL %s: %d fields (%w)", fields, gone, err)
		}
		for i := range 3 {
			if err := v.take(ctx, "p", fmt.Sprintf(`{"after":%d}`, i)); err != nil {
				return err
			}
			a, err := v.account(ctx, false)
			if err != nil {
				return err
			}
			if err := lawful(a); err != nil {
				return err
			}
		}
		if !leased {
			if v, err = s.serve(ctx, append(flags, "--role=drain")...); err != nil {
				return err
			}
		}
		l, err := v.settled(ctx, 45*time.Second)
		if err != nil {
			return err
		}
		// All entries were there all the time: they end as those of any other
		// partition. Only what is delivered or evicted while the hash is gone
		// may be counted anew.
		if l.Lost > 4 || l.Accepted < 7 || l.Accepted > 7+4 || l.Expired != 0 || l.Dead != 0 || l.Evicted > 7 {
			return fmt.Errorf("7 entries, of which none vanished: %+v", l)
		}
		return nil
	}
}

// readiness is the text of the admin port's /readyz, whatever its status.
func (v *server) readiness(ctx context.Context) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.admin+"/readyz", nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := lone.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// foreignDead: somebody's string is where the dead letters of the shard go.
func foreignDead(ctx context.Context, s *stage) error {
	const dead = "sw:{default.0}:dead"
	hook, err := s.receive(func(d delivery) reply {
		if d.partition == "bad" {
			return reply{status: http.StatusUnprocessableEntity}
		}
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--linger=100ms", "--sink-timeout=1s", "--lease=3s")
	if err != nil {
		return err
	}
	if err := s.client.Set(ctx, dead, "somebody's", 0).Err(); err != nil {
		return err
	}
	if err := v.take(ctx, "bad", `{"n":1}`); err != nil {
		return err
	}
	sent := int64(0)
	if err := until(ctx, 20*time.Second, func() error {
		status, text, err := v.readiness(ctx)
		if err == nil && !strings.Contains(text, dead) {
			err = fmt.Errorf("/readyz does not tell: %d %s", status, text)
		}
		return err
	}); err != nil {
		return err
	}
	for i := range 5 {
		if err := v.take(ctx, fmt.Sprint("good-", i), numbered(10)...); err != nil {
			return err
		}
		sent += 10
	}
	if err := until(ctx, 20*time.Second, func() error {
		a, err := v.account(ctx, false)
		if err == nil && a.Ledger.Delivered != sent {
			err = fmt.Errorf("%d healthy entries do not settle: %+v", sent, a.Ledger)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.client.Del(ctx, dead).Err(); err != nil {
		return err
	}
	l, err := v.settled(ctx, 60*time.Second)
	if err == nil && (l.Dead != 1 || l.Delivered != sent) {
		err = fmt.Errorf("after DEL: %+v", l)
	}
	if err != nil {
		return err
	}
	return until(ctx, 20*time.Second, func() error {
		status, text, err := v.readiness(ctx)
		if err == nil && (status != http.StatusOK || strings.Contains(text, dead)) {
			err = fmt.Errorf("/readyz after DEL: %d %s", status, text)
		}
		return err
	})
}

// foreignPartition: one of the partitions of a request cannot be written.
func foreignPartition(kind string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		v, err := s.serve(ctx, "--sink=null:", "--linger=200ms")
		if err != nil {
			return err
		}
		if err := s.client.Set(ctx, "sw:{default.0}:"+kind+":b", "somebody's", 0).Err(); err != nil {
			return err
		}
		body := `{"partition":"a","data":1}` + "\n" + `{"partition":"b","data":2}` + "\n" + `{"partition":"c","data":3}` + "\n" + `{"partition":"a","data":4}`
		for range 3 {
			status, answer, err := v.post(ctx, "/v1/default", "application/x-ndjson", body)
			if err != nil || status != http.StatusOK || !strings.Contains(answer, `"accepted":3,`) || !strings.Contains(answer, `{"i":1,"result":"retry"`) {
				return fmt.Errorf("got %d %s (%w), want three of four", status, answer, err)
			}
		}
		l, err := v.settled(ctx, 20*time.Second)
		if err == nil && (l.Accepted != 9 || l.Delivered != 9) {
			err = fmt.Errorf("nine were accepted: %+v", l)
		}
		return err
	}
}
