package ingest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

func TestDefaultsAreValidAndEachInvalidSettingIsNamed(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for field, edits := range map[string][]func(*Config){
		"lanes":              {func(c *Config) { c.Lanes = 0 }, func(c *Config) { c.Lanes = 65 }},
		"max_inflight_bytes": {func(c *Config) { c.MaxInflightBytes = 0 }, func(c *Config) { c.MaxInflightBytes = 13<<20 + entryOverhead - 1 }, func(c *Config) { c.MaxInflightBytes = 1<<40 + 1 }},
		"max_body":           {func(c *Config) { c.MaxBody = 0 }, func(c *Config) { c.MaxBody = 1<<30 + 1 }},
		"max_decompressed":   {func(c *Config) { c.MaxDecompressed = c.MaxBody - 1 }},
		"max_entries":        {func(c *Config) { c.MaxEntries = 0 }, func(c *Config) { c.MaxEntries = 1001 }},
		"max_entry":          {func(c *Config) { c.MaxEntry = 0 }, func(c *Config) { c.MaxEntry = c.MaxDecompressed + 1 }},
		"read_timeout":       {func(c *Config) { c.ReadTimeout = 0 }, func(c *Config) { c.ReadTimeout = 1 }, func(c *Config) { c.ReadTimeout = math.MaxInt64 }},
		"write_timeout":      {func(c *Config) { c.WriteTimeout = -1 }, func(c *Config) { c.WriteTimeout = 1 }},
		"idle_timeout":       {func(c *Config) { c.IdleTimeout = 0 }, func(c *Config) { c.IdleTimeout = 1 }},
		"max_conns":          {func(c *Config) { c.MaxConns = 0 }, func(c *Config) { c.MaxConns = 1<<20 + 1 }},
		"produce_timeout":    {func(c *Config) { c.ProduceTimeout = 0 }, func(c *Config) { c.ProduceTimeout = 1 }},
	} {
		for i, edit := range edits {
			cfg := DefaultConfig()
			edit(&cfg)
			_, err := New(cfg, newFake(), prometheus.NewRegistry(), zap.NewNop())
			var wrong *partition.FieldError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s, %d: got %v", field, i, err)
			}
		}
	}
}

func TestTheLargestRequestsFitIntoTheSmallestBudget(t *testing.T) {
	t.Parallel()
	for _, size := range []int{300_000, 1 << 20, 4 << 20} {
		lines := strings.Repeat(strings.Repeat("x", size/1000-1)+"\n", 1000)
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `{"partition":"%s%d","id":"%s","data":"`, strings.Repeat("p", 124), i, strings.Repeat("i", 64))
			b.WriteString(strings.Repeat("x", max(0, size*(i+1)/1000-b.Len()-3)) + "\"}\n")
		}
		for name, r := range map[string][3]string{
			"plain": {lines, "/v1/default/p", "identity"}, "gzip": {gzipped(t, lines), "/v1/default/p", "gzip"},
			"zstd": {zstded(t, lines), "/v1/default/p", "zstd"}, "mixed": {b.String(), "/v1/default", "identity"},
			"mixed gzip": {gzipped(t, b.String()), "/v1/default", "gzip"},
		} {
			p := listen(t, newFake(), func(c *Config) {
				c.MaxBody, c.MaxDecompressed = max(len(r[0]), 1000), size
				c.MaxInflightBytes = int64(c.MaxBody) + 3*int64(size) + entryOverhead
			})
			if got := p.post(r[1], r[0], asNDJSON, "Content-Encoding: "+r[2]); got.status != 200 || got.body.Accepted != 1000 {
				t.Errorf("%s of %d bytes: got %d %.200s", name, size, got.status, got.raw)
			}
		}
	}
}
