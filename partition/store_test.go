package partition_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/partitiontest"
)

func TestStoreEmbedded(t *testing.T) {
	t.Parallel()
	partitiontest.Run(t, partitiontest.Target{URL: "embedded:", Alone: true})
}

func TestStoreOnOneRedis(t *testing.T) {
	t.Parallel()
	partitiontest.Run(t, partitiontest.Target{URL: "redis://" + redistest.Shared(t)})
}

func TestStoreOnSentinel(t *testing.T) {
	t.Parallel()
	partitiontest.Run(t, partitiontest.Target{URL: redistest.StartSentinel(t).URL()})
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	partitiontest.Run(t, partitiontest.Target{URL: redistest.StartCluster(t).URL()})
}
