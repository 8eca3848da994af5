package partition_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Redis forgets its scripts again and again, while pipelines of several partitions
// are under way. No caller sees an error, and the order of entries stays.
func TestScriptFlushesMidRunAreNotNoticed(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (*redistest.Server, string){
		"one Redis": func(t *testing.T) (*redistest.Server, string) { s := redistest.Start(t); return s, s.URL() },
		"Cluster": func(t *testing.T) (*redistest.Server, string) {
			s := redistest.StartClusterOfOne(t)
			return s, "redis-cluster://" + s.Addr
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, url := start(t)
			c := server.Client()
			s := open(t, url, func(p *partition.Policy) { p.Shards = 3 })
			const producers, spread = 3, 5
			rounds := seeds(150, 40)
			stop := make(chan struct{})
			var flushing, producing sync.WaitGroup
			flushes := 0
			flushing.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if err := c.ScriptFlush(context.Background()).Err(); err != nil {
							t.Errorf("flush: %v", err)
						}
						flushes++
					}
				}
			})
			for i := range producers {
				producing.Go(func() {
					for n := range rounds {
						var groups []*partition.Group
						for j := range spread {
							groups = append(groups, &partition.Group{
								Namespace: s.ns, Partition: fmt.Sprintf("p%d.%d", i, j), Entries: [][]byte{entry(strconv.Itoa(n))},
							})
						}
						s.Produce(t.Context(), groups)
						for _, g := range groups {
							if g.Err != nil {
								t.Errorf("round %d of %s: %v", n, g.Partition, g.Err)
								return
							}
						}
					}
				})
			}
			producing.Wait()
			close(stop)
			flushing.Wait()
			t.Logf("%d flushes", flushes)
			var want []string
			for n := range rounds {
				want = append(want, strconv.Itoa(n))
			}
			for i := range producers {
				for j := range spread {
					name := fmt.Sprintf("p%d.%d", i, j)
					list := c.LRange(t.Context(), backend.ShardPrefix("sw", "default", s.ns.ShardOf(name), s.ns.Shards())+"q:"+name, 0, -1).Val()
					var got []string
					for _, e := range list {
						got = append(got, e[14:])
					}
					if strings.Join(got, " ") != strings.Join(want, " ") {
						t.Errorf("%s holds %v, want 0 to %d in order", name, got, rounds-1)
					}
				}
			}
		})
	}
}
