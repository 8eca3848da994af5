package job_test

import (
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

func TestStoreEmbedded(t *testing.T) {
	t.Parallel()
	jobtest.Run(t, jobtest.Target{URL: "embedded:"})
}

func TestStoreOnOneRedis(t *testing.T) {
	t.Parallel()
	jobtest.Run(t, jobtest.Target{URL: "redis://" + redistest.Shared(t)})
}

func TestStoreOnSentinel(t *testing.T) {
	t.Parallel()
	jobtest.Run(t, jobtest.Target{URL: redistest.StartSentinel(t).URL(), Replicas: 1})
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	jobtest.Run(t, jobtest.Target{URL: redistest.StartCluster(t).URL()})
}
