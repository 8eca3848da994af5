package space

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// reading is what the ledger of a shard records, once.
type reading struct {
	home   *Home
	sh     *Shard
	fields map[string]string
	err    error // why it could not be read or written
}

// inStore is how a namespace of a kind is called, stored and to be configured.
var inStore = map[string][2]string{"buffer": {"a buffer", "the buffer"}, "queue": {"queues", "the queues"}}

// of is what ledgers of a home record, but for the epoch: a random name of the ledger that no
// later one has.
func (k *Kind) of(h *Home) map[string]string {
	fields := map[string]string{"format": strconv.Itoa(k.Format), "shards": strconv.Itoa(len(h.Shards()))}
	if k.Named {
		fields["kind"] = k.Name
	}
	return fields
}

// checkLedgers compares what ledgers record with the configuration. It records what is missing,
// unless record is false or a ledger of the home cannot be read. A home that passed before is
// right while one of its ledgers can be read.
func (s *Space) checkLedgers(ctx context.Context, homes []*Home, record bool) map[*Home]error {
	// Read first: a full store rejects to write even what it holds already, and nothing is
	// written into the ledger of another kind.
	errs, missing, noEpoch := s.compare(s.readLedgers(ctx, homes, "", record))
	if !record {
		return errs
	}
	var begin []*Home
	for _, h := range homes {
		if errs[h] == nil && (missing[h] || noEpoch[h]) {
			if errs[h] = s.agree(ctx, h); errs[h] == nil {
				begin = append(begin, h)
			}
		}
	}
	if len(begin) == 0 {
		return errs
	}
	again, still, _ := s.compare(s.readLedgers(ctx, begin, rand.Text(), false))
	for _, h := range begin {
		switch {
		case !missing[h]: // a ledger from before there were epochs gets one once the store is no longer full
		case again[h] == nil && still[h]:
			errs[h] = backend.Wrap(backend.ErrUnavailable, errors.New("the ledger was removed meanwhile"))
		default:
			errs[h] = again[h]
		}
	}
	return errs
}

// agree has the first ledger of a namespace that is new to the store say of how many shards it is:
// several first users may be configured differently, or have seen the cluster differently.
func (s *Space) agree(ctx context.Context, h *Home) error {
	first := h.Shards()[0].Ledger
	if err := s.backend.Background.HSetNX(ctx, first, "shards", len(h.Shards())).Err(); err != nil {
		return backend.Classify(err)
	}
	recorded, err := s.count(ctx, h)
	if err == nil && !recorded {
		err = backend.Wrap(backend.ErrUnavailable, errors.New("the ledger was removed meanwhile"))
	}
	return err
}

// compare returns by home what is wrong, and whether ledgers lack what they should record.
func (s *Space) compare(all []*reading) (errs map[*Home]error, missing, noEpoch map[*Home]bool) {
	errs = map[*Home]error{}
	missing = map[*Home]bool{}
	noEpoch = map[*Home]bool{}
	read := map[*Home]bool{}
	for _, l := range all {
		err := l.err
		if err == nil {
			read[l.home] = true
			for name := range s.Kind.of(l.home) {
				missing[l.home] = missing[l.home] || l.fields[name] == ""
			}
			missing[l.home] = missing[l.home] || !l.home.IsFixed() // another first user may have been quicker
			noEpoch[l.home] = noEpoch[l.home] || l.fields["epoch"] == ""
			if wrong := s.Kind.mismatch(l.home, l.fields); wrong != nil {
				err = backend.Wrap(backend.ErrIncompatible, wrong)
			}
		}
		if errs[l.home] == nil || errors.Is(err, backend.ErrBroken) {
			errs[l.home] = err
		}
	}
	for h, err := range errs {
		if read[h] && s.mayBeAway(h) && !errors.Is(err, backend.ErrBroken) {
			errs[h] = nil
		}
	}
	return errs, missing, noEpoch
}

// mismatch is what a ledger records otherwise than this program would.
func (k *Kind) mismatch(h *Home, fields map[string]string) error {
	kind := fields["kind"]
	if kind == "" && fields["format"] != "" {
		kind = "buffer" // whose ledgers do not name it
	}
	switch {
	case kind == "" || kind == k.Name:
	case inStore[kind][0] == "":
		return fmt.Errorf("namespace %s: the store holds a namespace of kind %s, which this program does not know: upgrade the program", h.Name, kind)
	default:
		return fmt.Errorf("namespace %s: the store holds %s under this name: configure kind: %s, or use another namespace or prefix for %s",
			h.Name, inStore[kind][0], kind, inStore[k.Name][1])
	}
	for _, name := range []string{"format", "shards"} {
		got, err := strconv.Atoi(fields[name])
		switch {
		case fields[name] == "":
		case err != nil:
			return fmt.Errorf("namespace %s: its ledger holds %s=%q, which is no number; another program wrote there", h.Name, name, fields[name])
		case name == "format" && got != k.Format:
			return fmt.Errorf("namespace %s: the store holds format %d, this program knows %d: upgrade the program", h.Name, got, k.Format)
		case name == "shards" && got != len(h.Shards()) && h.IsFixed():
			return otherNumber(h.Name, len(h.Shards()), got)
		}
	}
	return nil
}

// readLedgers reads the ledgers of all shards, each server's in one pipeline. Where epoch is
// not empty it first writes what is missing: of several programs the first one wins, and all
// read what it wrote. Where ranked is true it leaves out what others read, except the first
// shard of each zone, which says whether its master can be reached.
func (s *Space) readLedgers(ctx context.Context, homes []*Home, epoch string,
	ranked bool) (all []*reading) {
	now := time.Now()
	byServer := map[redis.Cmdable][]*reading{}
	for _, h := range homes {
		asked := map[int]bool{} // by zone
		for _, sh := range h.Shards() {
			last := sh.compared.Load()
			if ranked && asked[sh.Zone] && h.passed() && last != nil && now.Sub(*last) < h.Rest(sh.Number) {
				continue
			}
			sh.compared.Store(&now)
			asked[sh.Zone] = true
			l := &reading{home: h, sh: sh}
			all = append(all, l)
			if s.mayBeAway(h) && !sh.Breaker.Allow() {
				l.err = backend.ErrUnreachable
				continue
			}
			server := s.backend.ClientFor(ctx, sh.Ledger)
			byServer[server] = append(byServer[server], l)
		}
	}
	var running sync.WaitGroup
	for server, part := range byServer {
		running.Go(func() { s.readSome(ctx, server, part, epoch) })
	}
	running.Wait()
	for _, part := range byServer {
		for _, l := range part {
			if l.err != nil {
				s.backend.ReloadClusterMap(ctx)
				return all
			}
		}
	}
	return all
}

var ledgerFields = []string{"format", "shards", "kind", "epoch"}

func (s *Space) readSome(ctx context.Context, client redis.Cmdable, list []*reading,
	epoch string) {
	pipe := client.Pipeline()
	reads := make([]*redis.SliceCmd, len(list))
	for i, l := range list {
		if epoch != "" {
			for name, value := range s.Kind.of(l.home) {
				pipe.HSetNX(ctx, l.sh.Ledger, name, value)
			}
			pipe.HSetNX(ctx, l.sh.Ledger, "epoch", epoch)
		}
		reads[i] = pipe.HMGet(ctx, l.sh.Ledger, ledgerFields...)
	}
	written, execErr := pipe.Exec(ctx)
	for i, l := range list {
		for len(written) > 0 {
			cmd := written[0]
			written = written[1:]
			if cmd == redis.Cmder(reads[i]) {
				break
			}
			if l.err == nil {
				l.err = backend.Classify(cmd.Err())
			}
		}
		err := reads[i].Err()
		if err == nil && len(reads[i].Val()) != len(ledgerFields) {
			err = execErr // no connection was made; the commands have no error of their own
		}
		if l.err == nil {
			l.err = backend.Classify(err)
		}
		l.sh.Breaker.Done(l.err)
		if l.err != nil {
			continue
		}
		l.fields = map[string]string{}
		for k, v := range reads[i].Val() {
			l.fields[ledgerFields[k]], _ = v.(string)
		}
	}
}
