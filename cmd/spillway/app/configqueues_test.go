package app

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func TestQueuesAreSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	const file = `
sinks:
  crm: "https://u:secret@crm.example/jobs"
namespaces:
  kart: {kind: buffer}
  plain: {kind: queue}
  mail:
    kind: queue
    shards: 4
    spread: {bulk: 4}
    max_jobs: 5000
    max_queues: 10
    dead: drop
    reply_ttl: 5m
    tokens:
      - sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      - {hash: "sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9", name: workers, consume: 1000/min}
    queues:
      - {match: "mail-*", rate: 100/s, burst: 50}
      - {match: bulk, rate: none, tries: 20, keep_trace: 24h}
    push:
      - {match: "mail-*", sink: crm, writes: 1..64, target: 300ms, batch: 16, backoff: 2s..5m}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, isBuffer := c.Namespaces["kart"]; !isBuffer || len(c.Namespaces) != 1 || len(c.QueueNamespaces) != 2 {
		t.Fatalf("got the buffers %v and the queues %v", c.Names(), c.QueueNames())
	}
	got := c.QueueNamespaces["mail"]
	if n := len(got.Tokens); n != 2 || got.Tokens[1].Name != "workers" || got.Tokens[1].Consume != (partition.Rate{Count: 1000, Per: time.Minute}) {
		t.Errorf("got the tokens %+v", got.Tokens)
	}
	got.Tokens = nil
	want := config.QueueNamespace{Shards: 4, MaxJobs: 5000, MaxQueues: 10, MaxKeys: 1_000_000, MaxSchedules: 100_000, MaxTraces: 10_000, Dead: "drop", ReplyTTL: 5 * time.Minute, Spread: map[string]int{"bulk": 4},
		Rules: []config.QueueRule{
			{Match: "mail-*", Rate: job.RateLimit{Rate: partition.Rate{Count: 100, Per: time.Second}}, Burst: 50},
			{Match: "bulk", Rate: job.RateLimit{None: true}, Tries: 20, KeepTrace: job.Span(24 * time.Hour)},
		},
		Push: []config.Push{{
			Match: "mail-*", Sink: "crm", Writes: config.Writes{Least: 1, Most: 64}, Target: 300 * time.Millisecond, Batch: 16,
			Backoff: config.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
		}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", c.File)
	if code != exitOK || strings.Contains(out, "u:secret") || !strings.Contains(out, "crm: https://…@crm.example/…") {
		t.Fatal(stderr, out)
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	for _, part := range []string{"kind: queue", "max_jobs: 5000 # ", "dead: drop # ", "bulk: 4", `- {match: mail-*, sink: crm, writes: 1..64, target: 300ms, batch: 16, backoff: 2s..5m}`, `- {match: mail-*, rate: 100/s, burst: 50}`, `- {match: bulk, rate: none, tries: 20, keep_trace: 24h}`, "name: workers, consume: 1000/min}"} {
		if code != exitOK || !strings.Contains(again, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, again)
		}
	}
}

func TestSinksOfPushAreChecked(t *testing.T) {
	t.Parallel()
	for sinks, want := range map[string]string{
		`{crm: "https://crm.example/in null:"}`:          "",
		`{crm: "htps://crm.example/in"}`:                 `spillway.yaml:4: sinks.crm: unknown sink scheme "htps"`,
		`{crm: "null: file:///no/such/folder/x.ndjson"}`: "spillway.yaml:4: sinks.crm: ",
		`{crm: " "}`: "spillway.yaml:4: sinks.crm: ",
		`{crm: "https://u:{env:NO_SUCH_PASSWORD}@crm.example"}`: "NO_SUCH_PASSWORD",
	} {
		file := writeFile(t, "spillway.yaml", "namespaces:\n  mail: {kind: queue, push: [{sink: crm}]}\n\nsinks: "+sinks+"\n")
		_, stderr, code := runCommand(t, nil, "", "config", "check", "--config", file)
		if (code == exitOK) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d, %s\nwant %s", sinks, code, stderr, want)
		}
	}
}
