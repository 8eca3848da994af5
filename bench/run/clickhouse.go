package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

const (
	insertRate    = 20_000 // entries a second
	insertFor     = 20 * time.Second
	insertRequest = 100 // entries of a mixed request
	minInsert     = 10_000
)

// insertPartitions are how many partitions share the load. With the linger of 1 s
// they hold a full batch, 2 entries and 1 entry when they are due.
var insertPartitions = []int{100, 10_000, 100_000}

// insertReport says how large the INSERTs are, by the server's own count.
type insertReport struct {
	Scenario string       `json:"scenario"`
	Machine  proc.Machine `json:"machine"`
	Rows     []insertRow  `json:"rows"`
	checks
}

type insertRow struct {
	Partitions int     `json:"partitions"`
	PerSecond  float64 `json:"entries_per_second"` // acknowledged
	Batch      float64 `json:"batch"`              // entries of a partition in a Write
	Inserts    int64   `json:"inserts"`            // while the load ran
	Rows       float64 `json:"rows_per_insert"`
	// Lag is how long after the last answer everything was in the table.
	Lag      time.Duration `json:"drained_ns"`
	Server   float64       `json:"server_cpu_us"`     // an entry
	Target   float64       `json:"clickhouse_cpu_us"` // an entry, its merges included
	RSSPeak  int64         `json:"server_rss_bytes"`
	Residual int64         `json:"residual"`
}

func (r *insertReport) sheet(bool) *sheet {
	s := &sheet{name: r.Scenario, machine: r.Machine, checks: r.Checks,
		head: []string{"partitions", "entries/s", "entries a batch", "INSERTs", "rows an INSERT", "drained after", "server µs", "clickhouse µs", "server peak"}}
	for _, row := range r.Rows {
		s.row(fmt.Sprint(row.Partitions), figure(row.PerSecond), figure(row.Batch), fmt.Sprint(row.Inserts), figure(row.Rows),
			row.Lag.Round(time.Millisecond).String(), figure(row.Server), figure(row.Target), fmt.Sprintf("%.0f MB", float64(row.RSSPeak)/1e6))
	}
	s.notes = append(s.notes, "INSERTs and their rows: what clickhouse-server counts (system.events) from the first request to the last "+
		"answer. µs: CPU an entry.")
	return s
}

// inserts loads a server whose sink is a clickhouse-server, and counts the rows that an
// INSERT has.
func inserts(ctx context.Context, s settings) (scenarioReport, error) {
	rep := &insertReport{Scenario: needsClickHouse, Machine: proc.ThisMachine(ctx, s.redisServer, s.bin)}
	for _, partitions := range insertPartitions {
		row, err := rep.measure(ctx, s, partitions)
		if err != nil {
			return nil, fmt.Errorf("%d partitions: %w", partitions, err)
		}
		rep.Rows = append(rep.Rows, row)
	}
	return rep, nil
}

func (rep *insertReport) measure(ctx context.Context, s settings, partitions int) (row insertRow, err error) {
	r, err := newSetup(ctx, s, false)
	if err != nil {
		return row, err
	}
	defer r.close()
	house, err := startClickHouse(ctx, r.dir)
	if err != nil {
		return row, err
	}
	defer house.process.Kill()
	if err := r.serve(ctx, "--role=all", "--sink=clickhouse://"+house.addr+"/default?table=events", morePartitions); err != nil {
		return row, err
	}
	before, err := house.counts(ctx)
	if err != nil {
		return row, err
	}
	used, err := r.usage(ctx)
	if err != nil {
		return row, err
	}
	begun, err := house.process.CPU()
	if err != nil {
		return row, err
	}
	load, err := bench.Run(ctx, bench.Load{
		URL: r.data, Namespace: "default", Timeout: requestTimeout, PayloadBytes: s.payload,
		Rate: insertRate / insertRequest, Duration: insertFor, Partitions: partitions, Entries: insertRequest, Mixed: true, Connections: batchConns,
	})
	if err != nil {
		return row, err
	}
	loaded := time.Now()
	after, err := house.counts(ctx)
	if err != nil {
		return row, err
	}
	empty, err := r.drained(ctx)
	if err != nil {
		return row, err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return row, err
	}
	cpu, err := house.process.CPU()
	if err != nil {
		return row, err
	}
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return row, err
	}
	stored, err := house.ask(ctx, "SELECT toInt64(uniqExact(partition, seq)) AS n FROM events FORMAT JSONEachRow")
	if err != nil {
		return row, err
	}
	var rows struct{ N int64 }
	if err := json.Unmarshal(stored, &rows); err != nil {
		return row, err
	}
	costs := now.since(used, load.Acked)
	row = insertRow{
		Partitions: partitions, PerSecond: load.Rate(), Batch: costs.Fill * partitionBatch,
		Inserts: after.inserts - before.inserts, Rows: float64(after.rows-before.rows) / float64(max(after.inserts-before.inserts, 1)),
		Lag: empty.Sub(loaded), Server: costs.Server, Target: float64((cpu - begun).Microseconds()) / float64(max(load.Acked, 1)),
		RSSPeak: now.serverRSS, Residual: *a.Residual,
	}
	l := a.Ledger
	name := func(promise string) string { return fmt.Sprintf("%d partitions: %s", partitions, promise) }
	rep.must(load.Errors() == 0 && load.Rate() >= insertRate*(1-rateSlack), name("20,000 entries/s are acknowledged"),
		"%.0f/s, %d unknown, rejected %v", load.Rate(), load.Unknown, load.Rejected)
	rep.must(row.Rows >= minInsert, name("an INSERT has 10,000 rows at least, on average"), "%.0f", row.Rows)
	rep.must(l.Accepted == load.Acked && l.Delivered == l.Accepted && row.Residual == 0, name("nothing is evicted, expired, dead or lost"),
		"residual %d, ledger %+v", row.Residual, l)
	rep.must(rows.N == load.Acked, name("each entry is in the table"), "%d of %d", rows.N, load.Acked)
	return row, nil
}

// A clickHouse is a clickhouse-server of its own, with the documented table.
type clickHouse struct {
	addr    string
	process *proc.Process
}

const (
	clickHouseConfig = `<yandex>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host><http_port>%s</http_port><timezone>UTC</timezone>
<path>%[2]s/clickhouse-data/</path><tmp_path>%[2]s/clickhouse-tmp/</tmp_path>
<users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>67108864</mark_cache_size>
</yandex>`
	clickHouseUsers = `<yandex>
<profiles><default/></profiles><quotas><default/></quotas>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
</yandex>`
	// clickHouseTable is what deploy/sql/clickhouse.sql makes.
	clickHouseTable = `CREATE TABLE events (namespace String, partition String, seq Int64, ts Int64, id String, data String,
		time DateTime MATERIALIZED toDateTime(intDiv(ts, 1000)))
		ENGINE = ReplacingMergeTree() PARTITION BY toYYYYMM(time) ORDER BY (namespace, partition, seq)`
)

func startClickHouse(ctx context.Context, dir string) (*clickHouse, error) {
	path, err := exec.LookPath("clickhouse-server")
	if err != nil {
		return nil, fmt.Errorf("clickhouse-server is not installed; `make deps-sinks` installs it: %w", err)
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"config.xml": fmt.Sprintf(clickHouseConfig, proc.Port(addr), dir), "users.xml": clickHouseUsers} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	h := &clickHouse{addr: addr}
	ready := func(ctx context.Context) error { _, err := h.ask(ctx, "SELECT 1"); return err }
	h.process, err = rig.Start(ctx, dir, "clickhouse", ready, path, "--config-file="+filepath.Join(dir, "config.xml"))
	if err != nil {
		return nil, err
	}
	if _, err = h.ask(ctx, clickHouseTable); err != nil {
		h.process.Kill()
		return nil, err
	}
	return h, nil
}

// ask runs a statement; an answer without status 200 is an error.
func (h *clickHouse) ask(ctx context.Context, sql string) ([]byte, error) {
	url := "http://" + h.addr + "/?output_format_json_quote_64bit_integers=0"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(sql))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("clickhouse: %s: %.300s", resp.Status, text)
	}
	return text, err
}

// insertCounts are the INSERTs of a server since it began, and their rows.
type insertCounts struct{ inserts, rows int64 }

func (h *clickHouse) counts(ctx context.Context) (c insertCounts, err error) {
	text, err := h.ask(ctx, "SELECT toInt64(sumIf(value, event = 'InsertQuery')) AS inserts, toInt64(sumIf(value, event = 'InsertedRows')) AS "+
		"rows FROM system.events FORMAT JSONEachRow")
	if err != nil {
		return c, err
	}
	var row struct{ Inserts, Rows int64 }
	err = json.Unmarshal(text, &row)
	return insertCounts{row.Inserts, row.Rows}, err
}
