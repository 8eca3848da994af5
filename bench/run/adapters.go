package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/bench"
)

const (
	adapterEntries = 100 // a request
	adapterPayload = 400 // bytes an entry, about what Segment's SDKs send
)

// adapters measures requests of Segment's SDKs, then the same number of entries of the
// same size on the route that mixes partitions; and with wrk what exporters of OTLP send.
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
	path, err := exec.LookPath(m.wrkPath)
	if err != nil {
		return nil
	}
	m.wrkPath = path
	for i, s := range exporters {
		ours, err := m.batchesByWrk(ctx, s.path, s.contentType, s.batch)
		if err != nil {
			return err
		}
		other, err := m.batchesByWrk(ctx, "/v1/default", "application/x-ndjson", func(partition string) string {
			return strings.Repeat(`{"partition":"`+partition+`","ts":1763629675000,"data":`+s.entry(partition)+"}\n", adapterEntries)
		})
		if err != nil {
			return err
		}
		m.rows[1+i].add(ours, other, nil)
	}
	return nil
}

// exporter sends batches of adapterEntries lines of text.
type exporter struct {
	name, path, contentType string
	batch, entry            func(partition string) string // a body; what the sink gets of a line
}

var lineText = strings.Repeat("lap done ", 25)

const otlpTime = `{"timeUnixNano":"1763629675000000000","body":{"stringValue":"`

var exporters = []exporter{
	{"OTLP in JSON", "/otlp/v1/logs", "application/json", func(partition string) string {
		record := otlpTime + lineText + `"}}`
		return `{"resourceLogs":[{"resource":` + otlpResource(partition) + `,"scopeLogs":[{"logRecords":[` + repeated(record) + `]}]}]}`
	}, otlpEntry},
	{"OTLP in protobuf", "/otlp/v1/logs", "application/x-protobuf", func(partition string) string {
		value := field(1, lineText)
		record := string(protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 1763629675000e6)) + field(5, value)
		attribute := field(1, "service.name") + field(2, field(1, partition))
		return field(1, field(1, field(1, attribute))+field(2, strings.Repeat(field(2, record), adapterEntries)))
	}, otlpEntry},
}

func otlpResource(partition string) string {
	return `{"attributes":[{"key":"service.name","value":{"stringValue":"` + partition + `"}}]}`
}

func otlpEntry(partition string) string {
	return `{"resource":` + otlpResource(partition) + `,"scope":{},` + otlpTime[1:] + lineText + `"}}`
}

func repeated(item string) string {
	return strings.TrimSuffix(strings.Repeat(item+",", adapterEntries), ",")
}

// field is one of protobuf.
func field(number protowire.Number, text string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), text))
}

// batchesByWrk is the entries a second that are stored of batches of one partition each.
func (m *measurement) batchesByWrk(ctx context.Context, path, contentType string, batch func(partition string) string) (float64, error) {
	r, err := m.fresh(ctx, "--role=ingest", roomyFlag)
	if err != nil {
		return 0, err
	}
	defer r.close()
	requests := make([]wrkRequest, m.partitions)
	for i := range requests {
		requests[i] = wrkRequest{path, contentType, "default", batch(fmt.Sprint("bench-", i))}
	}
	res, err := m.wrk(ctx, r.dir, r.data, batchConns, requests)
	if err != nil {
		return 0, err
	}
	l, err := r.ledger(ctx)
	if least := res.Requests * adapterEntries; res.Failed > 0 || l.Accepted < least || l.Accepted > least+batchConns*adapterEntries {
		m.fault("%s: %d requests stored, %d failed; ledger %+v", path, res.Requests, res.Failed, l)
	}
	return res.rate() * adapterEntries, err
}

// transformed measures 128-entry requests with and without a transform of three steps.
func transformed(ctx context.Context, m *measurement) error {
	l := bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: partitionBatch, Connections: batchConns}
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "transform.yaml")
	const steps = `namespaces: {default: {transform: [{drop_if: {path: event, equals: ping}}, {set: {path: env, value: prod}}, {remove: [user.ip]}]}}`
	if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
		return err
	}
	with, err := m.segmentOf(ctx, l, false, "--role=ingest", roomyFlag, "--config="+file)
	if err != nil {
		return err
	}
	without, err := m.segmentOf(ctx, l, false, "--role=ingest", roomyFlag)
	if err == nil {
		m.rows[0].add(with.load.Rate(), without.load.Rate(), &with.costs)
	}
	return err
}
