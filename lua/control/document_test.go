package control_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// doc is one document, with the bounds that the calls of a test pass.
type doc struct {
	t                               *testing.T
	c                               *redis.Client
	keys                            []string
	format, entries, bytes, deleted int
	lastVersion                     int64
	epoch                           string
}

var docs atomic.Int64

// on runs a test on both servers that the scripts run on.
func on(t *testing.T, f func(t *testing.T, d *doc)) {
	t.Helper()
	t.Parallel()
	run := func(name string, client func(t *testing.T) *redis.Client) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := fmt.Sprintf("sw:{control%d}:", docs.Add(1))
			f(t, &doc{t: t, c: client(t), keys: []string{prefix + "doc", prefix + "changes"}, format: 1, entries: 5000, bytes: 1 << 20, deleted: 3})
		})
	}
	run("redis", func(t *testing.T) *redis.Client { return redistest.SharedClient(t) })
	run("miniredis", func(t *testing.T) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		return c
	})
}

func try(c *redis.Client, s *lua.Script, keys []string, argv ...any) ([]any, error) {
	v, err := c.Eval(context.Background(), s.Source, keys, argv...).Result()
	reply, _ := v.([]any)
	return reply, err
}

// tryChange changes pairs of names and values for a writer that read a version. It
// returns the status and what follows it.
func (d *doc) tryChange(since int64, epoch string, pairs ...any) (status, n int64) {
	d.t.Helper()
	argv := append([]any{since, epoch, "epoch1", d.format, d.entries, d.bytes, d.deleted}, pairs...)
	reply, err := try(d.c, control.Change, d.keys, argv...)
	if err != nil || len(reply) != 3 {
		d.t.Fatalf("change: got %v %v", reply, err)
	}
	return reply[1].(int64), reply[2].(int64)
}

// change is tryChange for a writer that is up to date, and must succeed.
func (d *doc) change(pairs ...any) {
	d.t.Helper()
	status, version := d.tryChange(d.lastVersion, d.epoch, pairs...)
	if status != 1 || version != d.lastVersion+1 {
		d.t.Fatalf("got status %d, version %d", status, version)
	}
	d.lastVersion, d.epoch = version, "epoch1"
}

// read is what a reader of a version learns.
func (d *doc) read(since int64, epoch string) (version int64, whole bool, entries map[string]string) {
	d.t.Helper()
	reply, err := try(d.c, control.Read, d.keys, since, epoch, d.format)
	if err != nil || len(reply) < 5 || len(reply)%2 != 1 {
		d.t.Fatalf("read: got %v %v", reply, err)
	}
	entries = map[string]string{}
	for i := 5; i < len(reply); i += 2 {
		entries[reply[i].(string)] = reply[i+1].(string)
	}
	return reply[2].(int64), reply[4].(int64) == 1, entries
}

func (d *doc) reads(since int64, epoch string, whole bool, want map[string]string) {
	d.t.Helper()
	version, all, got := d.read(since, epoch)
	if version != d.lastVersion || all != whole || !reflect.DeepEqual(got, want) {
		d.t.Errorf("a reader of version %d %s learns version %d, whole %v, %v; want version %d, whole %v, %v", since, epoch, version, all, got, d.lastVersion, whole, want)
	}
}

type entries = map[string]string

func TestAReaderLearnsWhatChanged(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		d.reads(0, "", true, entries{})
		d.change("ns:a", "1", "token:a:x", "2")
		d.change("ns:b", "3")
		d.reads(0, "", true, entries{"ns:a": "1", "token:a:x": "2", "ns:b": "3"})
		d.reads(1, "epoch1", false, entries{"ns:b": "3"})
		d.reads(2, "epoch1", false, entries{})
		d.change("ns:a", "", "ns:b", "4")
		d.reads(2, "epoch1", false, entries{"ns:a": "", "ns:b": "4"})
		d.reads(1, "epoch1", false, entries{"ns:a": "", "ns:b": "4"})
		d.reads(3, "another", true, entries{"token:a:x": "2", "ns:b": "4"})
		d.reads(4, "epoch1", true, entries{"token:a:x": "2", "ns:b": "4"})
	})
}

// Names of deleted entries do not pile up: who is too far behind reads all.
func TestNamesOfDeletedEntriesAreForgotten(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		d.change("ns:keep", "1")
		for i := range 20 {
			d.change(fmt.Sprint("ns:", i), "x")
			d.change(fmt.Sprint("ns:", i), "")
		}
		if n := d.c.ZCard(context.Background(), d.keys[1]).Val(); n > int64(d.deleted)+1 {
			t.Errorf("%d names are kept, want one and %d deleted ones at most", n, d.deleted)
		}
		d.reads(1, "epoch1", true, entries{"ns:keep": "1"})
		version, whole, got := d.read(d.lastVersion-1, "epoch1")
		if version != d.lastVersion || (whole && len(got) != 1) || (!whole && len(got) != 1) {
			t.Errorf("got version %d, whole %v, %v", version, whole, got)
		}
	})
}

func TestTheSecondOfTwoWritersIsRejected(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		d.change("ns:a", "1")
		if status, version := d.tryChange(0, "", "ns:a", "2"); status != 0 || version != 1 {
			t.Errorf("a writer who read nothing: got %d %d", status, version)
		}
		if status, _ := d.tryChange(1, "another", "ns:a", "2"); status != 0 {
			t.Errorf("a writer who read another document: got %d", status)
		}
		d.reads(0, "", true, entries{"ns:a": "1"})
	})
}

func TestTheDocumentIsBounded(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		d.entries, d.bytes = 2, 20
		d.change("ns:a", "1", "ns:b", "2")
		if status, n := d.tryChange(1, d.epoch, "ns:c", "3"); status != 3 || n != 3 {
			t.Errorf("a third entry: got %d %d", status, n)
		}
		if status, n := d.tryChange(1, d.epoch, "ns:b", strings.Repeat("x", 12)); status != 4 || n != 21 {
			t.Errorf("too many bytes: got %d %d", status, n)
		}
		d.change("ns:b", strings.Repeat("x", 11)) // 5 + 4 + 11 = 20
		d.change("ns:a", "", "ns:c", "3")         // room again
		d.entries = 1
		d.change("ns:c", "") // deleting goes on over the bound
		d.reads(0, "", true, entries{"ns:b": strings.Repeat("x", 11)})
	})
}

// All tokens of a namespace are deleted at once.
func TestAChangeTakesAThousandEntries(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		var set, deleted []any
		for i := range 1001 {
			set, deleted = append(set, fmt.Sprint("token:a:", i), "x"), append(deleted, fmt.Sprint("token:a:", i), "")
		}
		d.change(set...)
		d.change(deleted...)
		d.reads(0, "", true, entries{})
	})
}

func TestANewerFormatIsLeftAlone(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		d.format = 2
		d.change("ns:a", "1")
		d.format = 1
		if status, format := d.tryChange(1, d.epoch, "ns:a", "2"); status != 2 || format != 2 {
			t.Errorf("got %d %d", status, format)
		}
		reply, err := try(d.c, control.Read, d.keys, 0, "", 1)
		if err != nil || len(reply) != 5 || reply[1] != int64(2) {
			t.Errorf("a reader learns %v %v, want the format only", reply, err)
		}
	})
}

// What something else wrote under the keys rejects calls; nothing is overwritten.
func TestAForeignValueRejectsTheCall(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		ctx := context.Background()
		for i, key := range d.keys {
			d.c.Set(ctx, key, "foreign", 0)
			if _, err := try(d.c, control.Change, d.keys, 0, "", "e", 1, 10, 100, 3, "ns:a", "1"); err == nil {
				t.Errorf("change with a foreign KEYS[%d]: no error", i+1)
			}
			if _, err := try(d.c, control.Read, d.keys[:1], 0, "", 1); i == 0 && err == nil {
				t.Error("read of a foreign document: no error")
			}
			if n := d.c.Exists(ctx, d.keys...).Val(); n != 1 || d.c.Get(ctx, key).Val() != "foreign" {
				t.Errorf("foreign KEYS[%d]: something was written", i+1)
			}
			d.c.Del(ctx, key)
		}
		d.c.HSet(ctx, d.keys[0], "version", "x")
		for _, s := range []*lua.Script{control.Read, control.Change} {
			argv := []any{0, "", 1}
			if s == control.Change {
				argv = []any{0, "", "e", 1, 10, 100, 3, "ns:a", "1"}
			}
			if _, err := try(d.c, s, d.keys, argv...); err == nil || !strings.Contains(err.Error(), "foreign value") {
				t.Errorf("%s: got %v", s.Name, err)
			}
		}
	})
}

func TestBadArgumentsRejectTheCall(t *testing.T) {
	on(t, func(t *testing.T, d *doc) {
		for _, c := range []struct {
			script *lua.Script
			argv   []any
		}{
			{control.Read, []any{-1, "", 1}}, {control.Read, []any{0, "", 0}}, {control.Read, []any{"x", "", 1}},
			{control.Change, []any{0, "", "e", 1, 10, 100, 3}}, {control.Change, []any{0, "", "e", 1, 10, 100, 3, "ns:a"}},
			{control.Change, []any{0, "", "e", 1, 10, 100, 3, "version", "9"}}, {control.Change, []any{1.5, "", "e", 1, 10, 100, 3, "ns:a", "1"}},
			{control.Grant, []any{0, 1000, 1, 1}}, {control.Grant, []any{1, 0, 1, 1}}, {control.Grant, []any{1, 1000, 0, 1}}, {control.Grant, []any{1, 1000, 1, 0}},
		} {
			if reply, err := try(d.c, c.script, d.keys, c.argv...); err == nil || !strings.Contains(err.Error(), "bad arguments") {
				t.Errorf("%s %v: got %v %v", c.script.Name, c.argv, reply, err)
			}
		}
		if n := d.c.Exists(context.Background(), d.keys...).Val(); n != 0 {
			t.Error("something was written")
		}
	})
}

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(control.All()), scripttest.Includes(t, ".."))
}

// The store tries the rights of its user with that probe before anything else, so these
// scripts must need no others.
func TestNoScriptNeedsMoreRightsThanThePermissionProbeTries(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, lua.PermissionProbe, control.All(), 5)
}
