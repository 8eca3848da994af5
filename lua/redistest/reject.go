package redistest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Rejection is a state in which a server answers reads and rejects writes.
type Rejection struct {
	Word       string // that its errors begin with
	Begin, End func(tb testing.TB, s *Server)
}

// Rejections are the states that reject every write; Full is the one that rejects
// only what would add something.
var (
	Rejections = []Rejection{
		{"READONLY", set("replicaof", "127.0.0.1", "1"), set("replicaof", "no", "one")},
		{"NOREPLICAS", set("config", "set", "min-replicas-to-write", "1"), set("config", "set", "min-replicas-to-write", "0")},
		{"MISCONF", failSnapshot, set("config", "set", "save", "")},
	}
	Full = Rejection{"OOM", set("config", "set", "maxmemory", "1"), set("config", "set", "maxmemory", "0")}
)

func set(args ...any) func(testing.TB, *Server) {
	return func(tb testing.TB, s *Server) {
		tb.Helper()
		must(tb, s.Client().Do(context.Background(), args...).Err())
	}
}

// failSnapshot takes the folder away that snapshots go to.
func failSnapshot(tb testing.TB, s *Server) {
	tb.Helper()
	c := s.Client()
	ctx := context.Background()
	must(tb, c.ConfigSet(ctx, "save", "3600 1000000").Err())
	must(tb, os.RemoveAll(s.Dir))
	c.BgSave(ctx)
	Until(tb, 10*time.Second, "the snapshot fails", func() bool {
		text := c.Info(ctx, "persistence").Val()
		return strings.Contains(text, "rdb_last_bgsave_status:err") && strings.Contains(text, "rdb_bgsave_in_progress:0")
	})
}

// StartFullDisk starts a server with an append-only file on a disk that has no
// room left: every write to the file fails with ENOSPC.
func StartFullDisk(tb testing.TB, args ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	files := filepath.Join(dir, "appendonlydir")
	must(tb, os.Mkdir(files, 0o700))
	must(tb, os.WriteFile(filepath.Join(files, "appendonly.aof.manifest"), []byte("file appendonly.aof.1.incr.aof seq 1 type i\n"), 0o600))
	must(tb, os.Symlink("/dev/full", filepath.Join(files, "appendonly.aof.1.incr.aof")))
	return start(tb, FreeAddr(tb), dir, append([]string{"--appendonly", "yes"}, args...))
}

// Ended says whether the server has ended by itself.
func (s *Server) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
