package partition_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// serverFault makes a server refuse, and mends it.
type serverFault struct {
	begin, end func(t *testing.T, s *redistest.Server)
}

func config(t *testing.T, s *redistest.Server, field, value string) {
	t.Helper()
	c := s.Client()
	defer c.Close()
	if err := c.ConfigSet(context.Background(), field, value).Err(); err != nil {
		t.Fatalf("CONFIG SET %s %s: %v", field, value, err)
	}
}

// refuseWrites are states in which a server answers reads and refuses every
// write that would add something, by the word that its errors begin with.
var refuseWrites = map[string]serverFault{
	"MISCONF": {
		func(t *testing.T, s *redistest.Server) {
			t.Helper()
			config(t, s, "save", "3600 1000000")
			if err := os.RemoveAll(s.Dir); err != nil {
				t.Fatal(err)
			}
			c := s.Client()
			c.BgSave(context.Background())
			redistest.Until(t, 10*time.Second, "the snapshot fails", func() bool {
				text := c.Info(context.Background(), "persistence").Val()
				return strings.Contains(text, "rdb_last_bgsave_status:err") && strings.Contains(text, "rdb_bgsave_in_progress:0")
			})
		},
		func(t *testing.T, s *redistest.Server) { config(t, s, "save", "") },
	},
	"NOREPLICAS": {
		func(t *testing.T, s *redistest.Server) { config(t, s, "min-replicas-to-write", "1") },
		func(t *testing.T, s *redistest.Server) { config(t, s, "min-replicas-to-write", "0") },
	},
	"READONLY": {
		func(t *testing.T, s *redistest.Server) { s.Client().SlaveOf(t.Context(), "127.0.0.1", "1") },
		func(t *testing.T, s *redistest.Server) { s.Client().SlaveOf(t.Context(), "no", "one") },
	},
	"OOM": {
		func(t *testing.T, s *redistest.Server) { config(t, s, "maxmemory", "1") },
		func(t *testing.T, s *redistest.Server) { config(t, s, "maxmemory", "0") },
	},
}
