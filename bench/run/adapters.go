package main

import (
	"context"

	"github.com/spillway-io/spillway/bench"
)

const (
	adapterEntries = 100 // a request
	adapterPayload = 400 // bytes an entry, about what Segment's SDKs send
)

// adapters measures requests of Segment's SDKs, then the same number of entries of the
// same size on the route that mixes partitions.
func adapters(ctx context.Context, m *measurement) error {
	sized := *m
	sized.payload = adapterPayload
	l := bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: adapterEntries, Connections: batchConns, Segment: true}
	segment, err := sized.segmentOf(ctx, l, false, "--role=ingest", roomyFlag)
	if err != nil {
		return err
	}
	l.Segment, l.Mixed = false, true
	mixed, err := sized.segmentOf(ctx, l, false, "--role=ingest", roomyFlag)
	if err != nil {
		return err
	}
	m.rows[0].add(segment.load.Rate(), mixed.load.Rate(), &segment.costs)
	return nil
}
