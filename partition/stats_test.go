package partition_test

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

func TestPartitionsListsEveryPartitionOnce(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL(), func(p *partition.Policy) { p.Shards = 3 })
	for i := range 50 {
		for range i%3 + 1 {
			if err := s.produce(fmt.Sprint("p", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, pages := map[string]int{}, 0
	var from partition.Page
	for {
		list, next, err := s.Partitions(t.Context(), s.ns, from, 7)
		if err != nil || len(list) > 7 {
			t.Fatalf("got %d partitions, %v; want 7 at most", len(list), err)
		}
		for _, one := range list {
			found[one.Partition] += one.Depth
		}
		if pages++; next == (partition.Page{}) || pages > 50 {
			break
		}
		from = next
	}
	for i := range 50 {
		if name := fmt.Sprint("p", i); found[name] != i%3+1 {
			t.Errorf("%s: got a depth of %d in all pages, want %d", name, found[name], i%3+1)
		}
	}
	if len(found) != 50 {
		t.Errorf("got %d partitions, want 50", len(found))
	}
}
