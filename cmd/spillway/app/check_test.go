package app

import (
	"strings"
	"testing"
)

// serve validates with the same functions.
func TestConfigCheckRejectsUnusableSettings(t *testing.T) {
	t.Parallel()
	const huge, ownTimeouts = "9223372036854775807", "time-outs, pools and retries are Spillway's own"
	for _, tt := range []struct {
		args string
		want []string // field, value, what to write
	}{
		{"--max-partitions=" + huge, []string{"namespaces.default.max_partitions: " + huge, "want 1 to 10000000"}},
		{"--max-partitions=0", []string{"max_partitions: 0 ", "want 1 to 10000000"}},
		{"--capacity=" + huge, []string{"capacity: " + huge, "want 1 to 10000000"}},
		{"--max-dead=" + huge, []string{"max_dead: " + huge, "want 1 to 1000000"}},
		{"--shards=" + huge, []string{"shards: " + huge, "want 1 to 1024"}},
		{"--batch=0", []string{"batch: 0 ", "want 1 to 128"}},
		{"--max-age=1ns", []string{"max_age: 1ns ", "want 100ms to 12h"}},
		{"--max-age=-1s", []string{"max_age: -1s ", "want 100ms to 12h"}},
		{"--max-age=2562047h", []string{"max_age: 2562047h", "want 100ms to 12h"}},
		{"--linger=-1ns", []string{"linger: -1ns ", "want 0s to max_age"}},
		{"--linger=4m", []string{"linger: 4m0s ", "want 0s to max_age"}},
		{"--delivery=once", []string{"delivery: once ", "want at-least-once or at-most-once"}},
		{"--backoff-base=0s", []string{"backoff_base: 0s ", "want 1ms or more"}},
		{"--backoff-max=50ms", []string{"backoff_max: 50ms ", "want backoff_base to 1h"}},
		{"--workers=0", []string{"workers: 0 ", "want 1 to 10000"}},
		{"--workers=" + huge, []string{"workers: " + huge, "want 1 to 10000"}},
		{"--sink-timeout=1ns", []string{"sink_timeout: 1ns ", "want 10ms to 10m"}},
		{"--sink-timeout=2562047h", []string{"sink_timeout: 2562047h", "want 10ms to 10m"}},
		{"--lease=1ns", []string{"lease: 1ns ", "want 2s more than sink_timeout"}},
		{"--lease=2562047h", []string{"lease: 2562047h", "want 1h at most"}},
		{"--sink-timeout=14s", []string{"lease: 15s ", "want 2s more than sink_timeout"}},
		{"--lanes=0", []string{"lanes: 0 ", "want 1 to 64"}},
		{"--max-conns=0", []string{"max_conns: 0 ", "want 1 to 1048576"}},
		{"--max-inflight-bytes=1B", []string{"max_inflight_bytes: 1 ", "want max_body + 3*max_decompressed + 1 MiB or more"}},
		{"--max-inflight-bytes=" + huge, []string{"max_inflight_bytes: " + huge, "want 1 TiB at most"}},
		{"--max-body=0", []string{"max_body: 0 ", "want 1 B to 1 GiB"}},
		{"--max-body=" + huge, []string{"max_body: " + huge, "want 1 B to 1 GiB"}},
		{"--max-body=8MiB", []string{"max_decompressed: 4194304 ", "want max_body to 1 GiB"}},
		{"--max-entries=0", []string{"max_entries: 0 ", "want 1 to 1000"}},
		{"--max-entry=0", []string{"max_entry: 0 "}},
		{"--read-timeout=1ns", []string{"read_timeout: 1ns ", "want 100ms to 1h"}},
		{"--read-timeout=2562047h", []string{"read_timeout: 2562047h", "want 100ms to 1h"}},
		{"--shutdown-timeout=1ns", []string{"shutdown_timeout: 1ns ", "want 100ms to 1h"}},
		{"--shutdown-timeout=2562047h", []string{"shutdown_timeout: 2562047h", "want 100ms to 1h"}},
		{"--log-level=loud", []string{"log_level: loud ", "want one of debug"}},
		{"--log-format=xml", []string{"log_format: xml ", "want one of auto"}},
		{"--role=both", []string{"role: both ", "want one of all"}},
		{"--durability=replica=9", []string{"durability: replica=9 ", "want async, or replica=1 to replica=5"}},
		{"--durability=replica=9 --redis=redis:/127.0.0.1", []string{"durability: replica=9 ", "redis: the URL is not usable"}},
		{"--prefix={a}", []string{"prefix: {a} ", "want 1 to 64 letters"}},
		{"--prefix=", []string{"prefix: ", "want 1 to 64 letters"}},
		{"--sink=pigeon:", []string{"sink", `"pigeon"`, " file: http:"}},
		{"--sink=http://127.1/", []string{"sink", "127.1", "write it as 10.0.0.1"}},
		{"--sink=file:///x?max_size=0B", []string{"sink", "max_size", "want 1B or more"}},
		{"--sink=file:///x?max_size=100", []string{"sink", "max_size", "100 has no unit: write 100MB, 100MiB or 100B"}},
		{"--tls-cert=/nowhere --tls-key=/nowhere", []string{"tls_cert", "/nowhere", "no such file"}},

		{"--listen=127.0.0.1", []string{"listen: 127.0.0.1 ", "want host:port"}},
		{"--listen=127.0.0.1:65536", []string{"listen: 127.0.0.1:65536 ", "want a port from 0 to 65535"}},
		{"--listen=127.0.0.1:-1", []string{"listen: 127.0.0.1:-1 ", "want a port from 0 to 65535"}},
		{"--admin-listen=127.0.0.1:no-such-service", []string{"admin_listen: 127.0.0.1:no-such-service ", "want a port from 0 to 65535"}},
		{"--admin-listen=127.0.0.1:8080", []string{"admin_listen: 127.0.0.1:8080 ", "a port other than"}},

		{"--redis=redis://h:1?read_timeout=5s", []string{`redis: option "read_timeout" `, "want no option but db", ownTimeouts}},
		{"--redis=rediss://h:1?pool_size=5", []string{`redis: option "pool_size" `, "want no option but db and skip_verify", ownTimeouts}},
		{"--redis=redis-sentinel://h1,h2/m?db=5", []string{`redis: option "db" `, "redis-sentinel://h1,h2/master/3"}},
		{"--redis=redis-cluster://h1,h2?max_redirects=1", []string{`redis: option "max_redirects" `, ownTimeouts}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check"}, strings.Fields(tt.args)...)...)
			if code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is missing in %q", want, stderr)
				}
			}
		})
	}
}
