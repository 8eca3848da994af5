package s3

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
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

func TestKeepsThePromisesOfHTTPTargets(t *testing.T) {
	t.Parallel()
	sinktest.RunHTTP(t, sinktest.HTTP{
		New: New, URL: "s3://KEY:s3cret@HOST/events/in?insecure=1&session_token=s3cret", TLS: "s3://KEY:s3cret@HOST/events/in",
		Wrong: map[string]string{
			"s3:":                                                "sink s3:: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3:///bucket":                                       "sink s3:…: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3://K:s3cret@:9000/b":                              "sink s3://…@:9000/…: names no host: write s3://KEY:SECRET@host:9000/bucket/prefix",
			"s3://K:s3cret@h:0/bucket":                           "sink s3://…@h:0/…: port is not 1 to 65535",
			"s3://K:s3cret@h/bucket#x":                           "sink s3://…@h/…: a # in the URL is written %23",
			"s3://h/bucket":                                      "sink s3://h/…: names no access key: write s3://KEY:SECRET@host/bucket, and a / in the secret as %2F",
			"s3://K@h/bucket":                                    "sink s3://…@h/…: names no access key: write s3://KEY:SECRET@host/bucket, and a / in the secret as %2F",
			"s3://K%0d:s3cret@h/bucket":                          "sink s3://…@h/…: the access key has other characters than letters, digits and ._=-",
			"s3://K:s3cret@h":                                    "sink s3://…@h: names no bucket, or one that cannot be: write s3://KEY:SECRET@host/bucket",
			"s3://K:s3cret@h/b":                                  "sink s3://…@h/…: names no bucket, or one that cannot be: write s3://KEY:SECRET@host/bucket",
			"s3://K:s3cret@h/bucket/a/../b":                      "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket/a//b":                        "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket/a%20b":                       "sink s3://…@h/…: prefix: want names of letters, digits and ._=- between single slashes",
			"s3://K:s3cret@h/bucket?region=a%0d":                 `sink s3://…@h/…?…: region: "a\r", want a name such as eu-central-1`,
			"s3://K:s3cret@h/bucket?insecure=yes":                `sink s3://…@h/…?…: insecure: "yes", want 1 or nothing`,
			"s3://K:s3cret@h/bucket?compression=7":               `sink s3://…@h/…?…: compression: "7", want gzip, zstd or none`,
			"s3://K:s3cret@h/bucket?per=batch":                   `sink s3://…@h/…?…: per: "batch", want write or partition`,
			"s3://K:s3cret@h/bucket?linger=0":                    `sink s3://…@h/…?…: linger: "0", want 10ms to 1m`,
			"s3://K:s3cret@h/bucket?linger=2m":                   `sink s3://…@h/…?…: linger: "2m", want 10ms to 1m`,
			"s3://K:s3cret@h/bucket?secret=x":                    `sink s3://…@h/…?…: unknown option "secret": known are region, session_token, insecure, compression, per, linger`,
			"s3://K:s3cret@h/bucket/" + strings.Repeat("p", 513): "sink s3://…@h/…: prefix is longer than 512 bytes",
		},
		Transport: func(s sink.Sink) *http.Transport { return s.(*Sink).client },
		Accept:    func(http.ResponseWriter, *http.Request) {},
		Answer: func(w io.Writer, _ int) {
			_, _ = io.WriteString(w, "<?xml version=\"1.0\"?>\n<Error><Code>Code.1</Code><Message>c4n4ry</Message></Error>")
		},
		Outcome: func(status int) string {
			switch {
			case status/100 == 2, status == 412:
				return "accepted"
			case status == 413:
				return "permanent"
			case slices.Contains([]int{301, 307, 401, 403, 404}, status):
				return "not connected"
			}
			return "throttle 1s"
		},
		Fault: "not connected", Cut: "accepted", Endless: "accepted", Reads: 50_000,
	})
}
