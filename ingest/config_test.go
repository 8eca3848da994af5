package ingest

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

func TestTheDefaultsAreUsableAndEachBadSettingIsNamed(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for field, edits := range map[string][]func(*Config){
		"lanes":              {func(c *Config) { c.Lanes = 0 }, func(c *Config) { c.Lanes = 65 }},
		"max_inflight_bytes": {func(c *Config) { c.MaxInflightBytes = 0 }, func(c *Config) { c.MaxInflightBytes = 9<<20 + encodingSlack - 1 }},
		"max_body":           {func(c *Config) { c.MaxBody = 0 }, func(c *Config) { c.MaxBody = 1<<30 + 1 }},
		"max_decompressed":   {func(c *Config) { c.MaxDecompressed = c.MaxBody - 1 }},
		"max_entries":        {func(c *Config) { c.MaxEntries = 0 }, func(c *Config) { c.MaxEntries = 1001 }},
		"max_entry":          {func(c *Config) { c.MaxEntry = 0 }, func(c *Config) { c.MaxEntry = c.MaxDecompressed + 1 }},
		"read_timeout":       {func(c *Config) { c.ReadTimeout = 0 }},
		"write_timeout":      {func(c *Config) { c.WriteTimeout = -1 }},
		"idle_timeout":       {func(c *Config) { c.IdleTimeout = 0 }},
		"max_conns":          {func(c *Config) { c.MaxConns = 0 }, func(c *Config) { c.MaxConns = 1<<20 + 1 }},
		"produce_timeout":    {func(c *Config) { c.ProduceTimeout = 0 }},
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
