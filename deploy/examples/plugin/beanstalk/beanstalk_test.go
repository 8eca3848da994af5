package beanstalk

import (
	"net/url"
	"testing"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestConforms(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		server := startServer(t)
		s, err := New(&url.URL{Scheme: "beanstalk", Host: server.listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		return sinktest.Fixture{
			Sink:     s,
			Received: server.received,
			Stall:    server.stall,
			Faults: []sinktest.Fault{
				{Name: "the server is full", Start: server.answers("OUT_OF_MEMORY")},
				{Name: "the server hangs up", Start: server.answers("")},
				{Name: "the server says something else", Start: server.answers("HELLO")},
				{Name: "jobs are too big", Permanent: true, Start: server.answers("JOB_TOO_BIG")},
			},
		}
	}})
}
