package control_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/redistest"
)

// ask asks for a part of a rate.
func (d *doc) ask(limit, length, need, slice int64) (granted, left, ends int64) {
	d.t.Helper()
	reply, err := try(d.c, control.Grant, d.keys[:1], limit, length, need, slice)
	if err != nil || len(reply) != 4 {
		d.t.Fatalf("grant: got %v %v", reply, err)
	}
	return reply[1].(int64), reply[2].(int64), reply[3].(int64)
}

const hour = 3_600_000

func TestGrantsNeverExceedTheLimit(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		for _, c := range []struct{ limit, need, slice, granted, left int64 }{
			{100, 1, 10, 10, 90}, {100, 10, 10, 10, 80}, {100, 11, 10, 20, 60}, {100, 61, 10, 0, 60}, {100, 55, 10, 60, 0}, {100, 1, 10, 0, 0},
			{105, 1, 10, 5, 0}, // the limit rose
			{50, 1, 10, 0, 0},  // and fell below what was granted
			{105, 1, 10, 0, 0},
		} {
			if granted, left, _ := d.ask(c.limit, hour, c.need, c.slice); granted != c.granted || left != c.left {
				t.Errorf("%+v: got %d, %d left", c, granted, left)
			}
		}
	})
}

func TestAWindowBeginsWithItsFirstGrant(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		ctx := context.Background()
		_, _, ends := d.ask(10, hour, 10, 1)
		if ttl := d.c.PTTL(ctx, d.keys[0]).Val(); ttl <= 59*time.Minute || ttl > time.Hour {
			t.Errorf("the window lives for %v", ttl)
		}
		if granted, _, again := d.ask(10, hour, 1, 1); granted != 0 || again != ends {
			t.Errorf("got %d, ends %d, want 0 and %d", granted, again, ends)
		}
		now, _ := strconv.ParseInt(strings.Fields(d.c.Get(ctx, d.keys[0]).Val())[1], 10, 64)
		for name, value := range map[string]string{
			"ended":               "3600000 1000 10",
			"of another length":   "60000 " + strconv.FormatInt(now, 10) + " 10",
			"after a clock fell":  "3600000 " + strconv.FormatInt(now+hour, 10) + " 10",
			"not one of a window": "foreign",
		} {
			d.c.Set(ctx, d.keys[0], value, 0)
			if granted, left, next := d.ask(10, hour, 1, 1); granted != 1 || left != 9 || next < ends {
				t.Errorf("%s: got %d, %d left, ends %d", name, granted, left, next)
			}
		}
	})
}

// A full Redis still grants what is for consumers, and lets an operator revoke a token.
func TestAFullRedisGrantsAndDeletes(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	d := &doc{t: t, c: c, keys: []string{"sw:{control}:doc", "sw:{control}:changes"}, format: 1, entries: 10, bytes: 1000, deleted: 3}
	d.change("token:a:x", "1")
	d.change("token:a:y", "1")
	c.ConfigSet(context.Background(), "maxmemory", "1")
	if _, err := try(c, control.Change, d.keys, 2, d.epoch, "e", 1, 10, 1000, 3, "token:a:z", "1", "token:a:y", ""); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("a new token: got %v, want OOM", err)
	}
	d.change("token:a:x", "")
	d.reads(0, "", true, entries{"token:a:y": "1"})
	g := &doc{t: t, c: c, keys: []string{"sw:{rate:1}:consume"}}
	if granted, _, _ := g.ask(10, hour, 1, 1); granted != 1 {
		t.Errorf("granted %d, want 1", granted)
	}
}

// What each call costs Redis, whatever the document holds.
func TestRedisCallsOfControl(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client()
	ctx := context.Background()
	cost := func(s *lua.Script, keys []string, argv ...any) (n int) {
		c.ConfigResetStat(ctx)
		if _, err := try(c, s, keys, argv...); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(c.Info(ctx, "commandstats").Val(), "\r\n") {
			if name, rest, ok := strings.Cut(line, ":calls="); ok && name != "cmdstat_eval" && name != "cmdstat_config|resetstat" {
				calls, _, _ := strings.Cut(rest, ",")
				k, _ := strconv.Atoi(calls)
				n += k
			}
		}
		return n
	}
	d := &doc{t: t, c: c, keys: []string{"sw:{control}:doc", "sw:{control}:changes"}, format: 1, entries: 10, bytes: 1000, deleted: 3}
	d.change("ns:a", "1", "ns:b", "1")
	for name, row := range map[string]struct{ got, want int }{
		"read, nothing changed": {cost(control.Read, d.keys, 1, "epoch1", 1), 2},                     // TIME HMGET
		"read of all":           {cost(control.Read, d.keys, 0, "", 1), 3},                           // and HGETALL
		"grant":                 {cost(control.Grant, []string{"sw:{rate:1}:p"}, 10, hour, 1, 1), 4}, // TIME GET DEL SET
		"grant, used up":        {cost(control.Grant, []string{"sw:{rate:1}:p"}, 10, hour, 10, 1), 2},
		"change":                {cost(control.Change, d.keys, 1, "epoch1", "e", 1, 10, 1000, 3, "ns:c", "1"), 8},
	} {
		if row.got != row.want {
			t.Errorf("%s: got %d Redis calls, want %d", name, row.got, row.want)
		}
	}
}
