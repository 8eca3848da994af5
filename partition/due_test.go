package partition

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestAPartitionSettledBetweenTheReadsOfDueIsListedOnce(t *testing.T) {
	t.Parallel()
	due := []string{"a", "b"}
	for later, want := range map[string][]DuePartition{
		"a": {{"a", 100, false}, {"b", 100, false}},
		"c": {{"a", 100, false}, {"b", 100, false}, {"c", 105, false}},
	} {
		if got := dueList(due, []redis.Z{{Member: later, Score: 105}}, 100, 0, 10); !slices.Equal(got, want) {
			t.Errorf("%s comes later: got %v, want %v", later, got, want)
		}
	}
	if got := dueList(due, []redis.Z{{Member: "c", Score: 105}}, 100, 0, 2); len(got) != 2 {
		t.Errorf("got %v, want two at most", got)
	}
}
