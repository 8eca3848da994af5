package space

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// A LayoutRecord is what a namespace records of one layout: a numbered list of shards, which
// never changes but for being closed. Numbers rise and never repeat.
type LayoutRecord struct {
	N      int64    `json:"n"`
	Shards int      `json:"shards"`
	First  int      `json:"first,omitempty"`     // number of its first shard, where ids name shards: no other layout has it
	Tags   []string `json:"tags,omitempty"`      // ends of the shards' hash tags; none for layout 1, whose tags are {ns.0}, {ns.1}, …
	Made   int64    `json:"made_ms"`             // on the store's clock; 0 for layout 1
	Closed int64    `json:"closed_ms,omitempty"` // since then nothing is left in it; 0 = it is open
	By     string   `json:"by,omitempty"`        // who asked for it
	Pool   string   `json:"pool,omitempty"`      // its shards lie there; empty: in that of the record, which no other pool has

	// Sums are the totals of its ledgers, which are not read any more; nil: they are.
	Sums      map[string]int64 `json:"sums,omitempty"`
	Forgotten int64            `json:"forgotten_ms,omitempty"` // since then nobody looks at its shards
	Abandoned int64            `json:"abandoned_ms,omitempty"` // since then what did not answer of it is given up
}

// more reports whether l says something of the same layout that o lacks.
func (l LayoutRecord) more(o LayoutRecord) bool {
	joined := o
	joined.join(l)
	return joined.Pool != o.Pool ||
		joined.Closed != o.Closed ||
		joined.Forgotten != o.Forgotten ||
		joined.Abandoned != o.Abandoned ||
		fmt.Sprint(joined.Sums) != fmt.Sprint(o.Sums)
}

// join takes up what o says of the same layout.
func (l *LayoutRecord) join(o LayoutRecord) {
	l.Pool = cmp.Or(l.Pool, o.Pool)
	l.Closed = cmp.Or(l.Closed, o.Closed)
	l.Forgotten = cmp.Or(l.Forgotten, o.Forgotten)
	l.Abandoned = cmp.Or(l.Abandoned, o.Abandoned)

	// They differ only after a failover that set a record back. Then all take the same ones.
	if l.Sums == nil || o.Sums != nil && compareSums(o.Sums, l.Sums) > 0 {
		l.Sums = o.Sums
	}
}

// compareSums compares field by field, in the order of their names: what was accepted is the first.
func compareSums(a, b map[string]int64) (order int) {
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		order = cmp.Or(order, cmp.Compare(a[name], b[name]))
	}
	return order
}

// A Record is what a process knows of the layouts of a namespace: never less than one, by rising
// numbers. Any old copy may be used, because shards are fenced before a newer layout is.
type Record struct {
	Version int64          `json:"version"` // of the stored record; 0 = there is none, so there is layout 1 only
	Floor   int64          `json:"floor"`   // no sequence of a closed layout is this high
	Wanted  int            `json:"wanted"`  // the most shards that a configuration named when the shards changed: only one that names more has its way
	Layouts []LayoutRecord `json:"layouts"`
}

// in is the record with the names of pools, where it was stored in the one of a name.
func (r Record) in(pool string) Record {
	r.Layouts = slices.Clone(r.Layouts)
	for i := range r.Layouts {
		r.Layouts[i].Pool = cmp.Or(r.Layouts[i].Pool, pool)
	}
	return r
}

// firstRecord is that of a namespace that never changed its shards.
func firstRecord(shards int) Record {
	return Record{Layouts: []LayoutRecord{{N: 1, Shards: shards}}}
}

// maxNumbers is how many shards all layouts of a namespace may have where ids name them: as many as
// an id can.
const maxNumbers = 1024

// numbers is the first number that no shard has.
func (r Record) numbers() (first int) {
	for _, l := range r.Layouts {
		first = max(first, l.First+l.Shards)
	}
	return first
}

func (r Record) current() LayoutRecord { return r.Layouts[len(r.Layouts)-1] }

// join is what two records know together: closed wins, and so does the larger floor. So a
// record that a failover set back is mended by whoever knows more.
func (r Record) join(o Record) Record {
	joined := Record{Version: max(r.Version, o.Version), Floor: max(r.Floor, o.Floor),
		Wanted: max(r.Wanted, o.Wanted), Layouts: slices.Clone(r.Layouts)}
	for _, l := range o.Layouts {
		i, found := slices.BinarySearchFunc(joined.Layouts, l.N, func(l LayoutRecord,
			n int64) int {
			return int(l.N - n)
		})
		switch {
		case !found && l.tagless():
		case !found:
			joined.Layouts = slices.Insert(joined.Layouts, i, l)
		default:
			joined.Layouts[i].join(l)
		}
	}
	return joined
}

// knowsMore reports whether r has something that o lacks.
func (r Record) knowsMore(o Record) bool {
	if r.Floor > o.Floor || r.Wanted > o.Wanted || len(r.Layouts) > len(o.Layouts) {
		return true
	}
	for _, l := range r.Layouts {
		i := slices.IndexFunc(o.Layouts, func(other LayoutRecord) bool { return other.N == l.N })
		if i < 0 || l.more(o.Layouts[i]) {
			return true
		}
	}
	return false
}

// short is what ledgers keep of a record: closed layouts without their tags and sums, so it does
// not say either that they were forgotten. Who learns of a newer layout by it must learn at once
// which ones were closed before, or it would copy their pauses a second time. Its version is 0, so
// that it reads the whole record, too.
func (r Record) short() Record {
	r.Version = 0
	r.Layouts = slices.Clone(r.Layouts)
	for i := range r.Layouts {
		if r.Layouts[i].Closed != 0 {
			l := &r.Layouts[i]
			l.Tags, l.Sums, l.Forgotten, l.Abandoned = nil, nil, 0, 0
		}
	}
	return r
}

// tagless: it is of a short record, and says no more than that the layout is closed.
func (l LayoutRecord) tagless() bool { return l.N > 1 && len(l.Tags) == 0 && l.Closed != 0 }

// fields are the record as the fields of its hash.
func (r Record) fields() []any {
	all := []any{"floor", r.Floor, "wanted", r.Wanted}
	for _, l := range r.Layouts {
		text, _ := json.Marshal(l) // of numbers and texts
		all = append(all, l.N, text)
	}
	return all
}

// parseRecord reads the fields of a hash; a hash without any is an empty Record.
func parseRecord(fields map[string]string) (r Record, err error) {
	for name, value := range fields {
		switch name {
		case "version":
			r.Version, err = strconv.ParseInt(value, 10, 64)
		case "floor":
			r.Floor, err = strconv.ParseInt(value, 10, 64)
		case "wanted":
			r.Wanted, err = strconv.Atoi(value)
		default:
			var l LayoutRecord
			err = json.Unmarshal([]byte(value), &l)
			r.Layouts = append(r.Layouts, l)
		}
		if err != nil {
			return Record{}, fmt.Errorf("the record of layouts holds %s=%.80q, which Spillway does not write", name, value)
		}
	}
	slices.SortFunc(r.Layouts, func(a, b LayoutRecord) int { return int(a.N - b.N) })
	return r, r.check()
}

// parseText reads the record that a ledger keeps; an empty text is an empty Record.
func parseText(text []byte) (r Record, err error) {
	if len(text) == 0 {
		return Record{}, nil
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("the record of layouts in a ledger: %w", err)
	}
	return r, r.check()
}

// check finds what no program wrote.
func (r Record) check() error {
	last := int64(0)
	for _, l := range r.Layouts {
		if l.N <= last || l.Shards < 1 || l.Shards > 1024 || l.First < 0 || l.First > maxNumbers || l.N > 1 && len(l.Tags) != l.Shards && !l.tagless() {
			return fmt.Errorf("the record of layouts holds a layout %d with %d shards, which Spillway does not write", l.N, l.Shards)
		}
		last = l.N
	}
	return nil
}
