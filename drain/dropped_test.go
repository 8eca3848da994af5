package drain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

func withIDs(r *rig, partition string) {
	r.store.set(func() {
		for i := range r.store.spaces["games"].partitions[partition].entries {
			r.store.spaces["games"].partitions[partition].entries[i].ID = []byte("id-" + string(rune('a'+i)))
		}
	})
}

func TestDeadAndExpiredEntriesAreSampledWithTheirIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 10 * time.Second })
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if batches[0].Partition == "down" {
				return errDown
			}
			var e sink.BatchError
			e.Fail(0, 1, sink.Permanent(sink.WithDetail(errDown, "the payload")))
			return &e
		}
		r.store.produce(r.ns, "bad", 3, time.Second)
		r.store.produce(r.ns, "down", 2, 0)
		withIDs(r, "bad")
		withIDs(r, "down")
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 5, Delivered: 2, Dead: 1, Expired: 2})
		dead := log.Recent(drops.Query{Reason: drops.Dead})
		if len(dead) != 1 || dead[0].ID != "id-b" || dead[0].Partition != "bad" || dead[0].Detail != errDown.Error() || dead[0].Age < time.Second || dead[0].Entries != 1 {
			t.Errorf("dead %+v: want entry id-b, its age, and the sink's words without the payload", dead)
		}
		sent := log.Recent(drops.Query{Reason: drops.Delivered, ID: "id-a"})
		if len(sent) != 1 || sent[0].Partition != "bad" || sent[0].Age < time.Second || log.Totals("games")[drops.Delivered].Entries != 2 || len(log.Recent(drops.Query{})) != 3 {
			t.Errorf("delivered %+v, totals %+v: want them counted, sampled, and in no query of drops", sent, log.Totals("games"))
		}
		if got := log.Totals("games")[drops.Dead].Entries; got != 1 {
			t.Errorf("%d dead", got)
		}
	})
}

func TestEntriesThatExpireInALeaseAreSampled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.MaxAge = 40 * time.Second; p.Linger = 100 * time.Millisecond })
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(context.Context, []*sink.Batch) error { time.Sleep(5 * time.Second); return nil }
		r.store.produce(r.ns, "p", 1, 0)
		r.start()
		r.drained(time.Minute) // the pace is known
		r.store.produce(r.ns, "p", 3, 35*time.Second)
		r.store.produce(r.ns, "p", 1, 0)
		withIDs(r, "p")
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 5, Delivered: 2, Expired: 3})
		list := log.Recent(drops.Query{Reason: drops.Expired, Partition: "p", ID: "id-a"})
		if len(list) != 1 || list[0].Age < 35*time.Second || log.Totals("")[drops.Expired].Entries != 3 {
			t.Errorf("%+v, totals %+v", list, log.Totals(""))
		}
	})
}

func TestFailedAndLostEntriesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, atMostOnce)
		log := drops.NewLog()
		r.cfg.Drops = log
		r.sink.write = func(context.Context, []*sink.Batch) error { return errDown }
		r.store.produce(r.ns, "p", 200, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		list := log.Recent(drops.Query{Reason: drops.Failed})
		if len(list) != 2 || list[0].Entries+list[1].Entries != 200 || list[0].Detail != errDown.Error() {
			t.Errorf("failed %+v", list)
		}
		w := &run{leaseWorker: &leaseWorker{drops: log.Of("games")}, account: newAccount(leaseOf(3))}
		w.recordLost(2)
		if list := log.Recent(drops.Query{Reason: drops.Lost}); len(list) != 1 || list[0].Entries != 2 || !strings.Contains(list[0].Detail, "other than Spillway") {
			t.Errorf("lost %+v", list)
		}
	})
}
