//go:build sinks

package kafka

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

// kcat is a reader with a Kafka library of its own.
func TestKcatReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			cluster := startCluster(t)
			s := open(t, cluster, topic+"?compression="+compression)
			var batches []*sink.Batch
			for i := range 20 {
				batches = append(batches, batch(fmt.Sprintf("p%d", i), 1, 50))
			}
			batches[0].Entries[0].ID = []byte("order-81")
			if err := s.Write(t.Context(), batches); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "kcat", "-C", "-q", "-e", "-b", strings.Join(cluster.ListenAddrs(), ","),
				"-t", topic, "-o", "beginning", "-f", `%k|%s|%T|%h\n`).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %.300s", err, out)
			}
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			var want []string
			for _, b := range batches {
				for i := range b.Entries {
					id := ""
					if b.Entries[i].ID != nil {
						id = "id=order-81,"
					}
					want = append(want, fmt.Sprintf(`%s|{"n":%d}|1763629675100|namespace=kart,seq=%d,ts=1763629675100,%sbatch=%s,attempt=1`,
						b.Partition, i, i+1, id, b.ID()))
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %d lines, want %d; the first are\n%s\n%s", len(got), len(want), got[0], want[0])
			}
		})
	}
}
