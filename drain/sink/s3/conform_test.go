package s3

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"gzip": "", "zstd by partition": "&compression=zstd&per=partition", "uncompressed": "&compression=none"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				f := newStore(t)
				fault := func(name string, permanent bool, answer http.HandlerFunc) sinktest.Fault {
					return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
						f.set(answer)
						return func() { f.set(nil) }
					}}
				}
				return sinktest.Fixture{
					Sink:     sinkOn(t, f.Listener.Addr().String(), query),
					Received: func() ([]sinktest.Record, error) { return lines(f.taken()) },
					Stall:    f.stalled,
					Faults: []sinktest.Fault{
						fault("hangs up", false, hangUp),
						fault("SlowDown", false, rejecting(503, "SlowDown")),
						fault("wrong secret", false, rejecting(403, "SignatureDoesNotMatch")),
						fault("no bucket", false, rejecting(404, "NoSuchBucket")),
						fault("no If-None-Match", false, rejecting(501, "NotImplemented")),
						fault("stores and hangs up", false, func(w http.ResponseWriter, r *http.Request) {
							f.keep(t, r)
							hangUp(w, r)
						}),
						// By name it would be given up, and cannot be divided.
						fault("too large", !strings.Contains(query, "per=partition"), rejecting(413, "EntityTooLarge")),
					},
				}
			}})
		})
	}
}
