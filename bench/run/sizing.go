package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// A cell is measured with about so many entries.
const (
	sizingEntries    = 200_000
	sizingPartitions = 50_000 // at most
)

var (
	sizingPayloads = []int{50, 200, 1000} // bytes
	sizingDepths   = []int{1, 10, 100, 1000, 10_000}
)

// sizingReport is the memory that a buffered entry takes in Redis, its share of the
// partition included.
type sizingReport struct {
	Scenario string       `json:"scenario"`
	Machine  proc.Machine `json:"machine"`
	Payloads []int        `json:"payload_bytes"`
	Rows     []sizingRow  `json:"rows"`
}

// sizingRow has a figure for each payload.
type sizingRow struct {
	Depth int       `json:"entries_a_partition"`
	Bytes []float64 `json:"bytes_an_entry"`
}

func (r *sizingReport) held() bool { return true }

func (r *sizingReport) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, head: []string{"entries a partition"},
		notes: []string{"Bytes of used_memory an entry, the keys of its partition included; names of partitions have 11 characters."}}
	for _, p := range r.Payloads {
		s.head = append(s.head, fmt.Sprintf("payload %d B", p))
	}
	for _, row := range r.Rows {
		cells := []string{strconv.Itoa(row.Depth)}
		for _, b := range row.Bytes {
			cells = append(cells, figure(b))
		}
		s.row(cells...)
	}
	return s
}

// sizing fills a Redis of its own for each cell and asks what it grew by.
func sizing(ctx context.Context, s settings) (scenarioReport, error) {
	rep := &sizingReport{Scenario: "sizing", Machine: proc.ThisMachine(ctx, s.redisServer, s.bin), Payloads: sizingPayloads}
	for _, depth := range sizingDepths {
		row := sizingRow{Depth: depth}
		for _, payload := range sizingPayloads {
			bytes, err := sizingCell(ctx, s, depth, payload)
			if err != nil {
				return nil, fmt.Errorf("%d entries a partition of %d bytes: %w", depth, payload, err)
			}
			row.Bytes = append(row.Bytes, bytes)
		}
		rep.Rows = append(rep.Rows, row)
	}
	return rep, nil
}

func sizingCell(ctx context.Context, s settings, depth, payload int) (float64, error) {
	r, err := newSetup(ctx, s, false)
	if err != nil {
		return 0, err
	}
	defer r.close()
	if _, err := r.store.Check(ctx); err != nil { // loads the scripts, whose memory does not count
		return 0, err
	}
	before, _, err := r.redisMemory(ctx)
	if err != nil {
		return 0, err
	}
	// Payloads differ in their first bytes: Redis must not be able to share them.
	entries := make([][]byte, depth)
	for i := range entries {
		text := strconv.Itoa(i)
		entries[i] = partition.AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(text+strings.Repeat("x", max(0, payload-len(text)))))
	}
	partitions := min(max(1, sizingEntries/depth), sizingPartitions)
	for i := range partitions {
		for at := 0; at < depth; at += 1000 {
			g := &partition.Group{Namespace: r.store.Namespace("default"), Partition: fmt.Sprintf("kart-%06d", i), Entries: entries[at:min(at+1000, depth)]}
			if r.store.Produce(ctx, []*partition.Group{g}); g.Err != nil {
				return 0, g.Err
			}
		}
	}
	after, _, err := r.redisMemory(ctx)
	return float64(after-before) / float64(partitions*depth), err
}
