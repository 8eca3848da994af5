package app

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition/control"
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
    push:
      - {match: "mail-*", sink: crm, concurrency: 4, rate: 100/s, batch: 16, backoff: 2s..5m}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, isBuffer := c.Namespaces["kart"]; !isBuffer || len(c.Namespaces) != 1 || len(c.Queues) != 2 {
		t.Fatalf("got the buffers %v and the queues %v", c.names(), c.queueNames())
	}
	got := c.Queues["mail"]
	if n := len(got.Tokens); n != 2 || got.Tokens[1].Name != "workers" || got.Tokens[1].Consume != (control.Rate{Count: 1000, Per: time.Minute}) {
		t.Errorf("got the tokens %+v", got.Tokens)
	}
	got.Tokens = nil
	want := Queues{Shards: 4, MaxJobs: 5000, MaxQueues: 10, MaxKeys: 1_000_000, Dead: "drop", ReplyTTL: 5 * time.Minute, Spread: map[string]int{"bulk": 4},
		Push: []Push{{"mail-*", "crm", 4, ingest.Quota{Count: 100, Per: time.Second}, 16, Backoff{2 * time.Second, 5 * time.Minute}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", c.File)
	if code != exitOK || strings.Contains(out, "u:secret") || !strings.Contains(out, "crm: https://…@crm.example/…") {
		t.Fatal(stderr, out)
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	for _, part := range []string{"kind: queue", "max_jobs: 5000 # ", "dead: drop # ", "bulk: 4", `- {match: mail-*, sink: crm, concurrency: 4, rate: 100/s, batch: 16, backoff: 2s..5m}`, "name: workers, consume: 1000/min}"} {
		if code != exitOK || !strings.Contains(again, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, again)
		}
	}
}

func TestAFileMayHaveQueuesAlone(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, "namespaces:\n  mail: {kind: queue}\n")
	if err != nil || len(c.Namespaces) != 0 || len(c.Queues) != 1 {
		t.Errorf("got %v, buffers %v", err, c.names())
	}
}

func TestErrorsOfQueueSettingsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"  a: {kind: stack}\n":                                              `2: namespaces.a.kind: "stack" is neither buffer nor queue`,
		"  a: {kind: queue, capacity: 5}\n":                                 "2: namespaces.a.capacity: ",
		"  a: {max_jobs: 5}\n":                                              "2: namespaces.a.max_jobs: ",
		"  a: {kind: queue, max_jobs: many}\n":                              `2: namespaces.a.max_jobs: "many" is not a whole number`,
		"  a: {kind: queue, max_jobs: 0}\n":                                 "2: namespaces.a.max_jobs: 0 is not usable",
		"  a: {kind: queue, shards: 0}\n":                                   "2: namespaces.a.shards: 0 is not usable",
		"  a: {kind: queue, dead: bury}\n":                                  "2: namespaces.a.dead: bury is not usable: want keep or drop",
		"  a: {kind: queue, spread: {x: 2}}\n":                              "2: namespaces.a.spread",
		"  a: {kind: queue, spread: [x]}\n":                                 "2: namespaces.a.spread: not a map",
		"  a: {kind: queue, push: {match: x}}\n":                            "2: namespaces.a.push: not a list, or empty",
		"  a: {kind: queue, push: [{match: x}]}\n":                          `2: namespaces.a.push[0].sink:  is not usable: want a name`,
		"  a: {kind: queue, push: [{match: x, sink: none}]}\n":              "2: namespaces.a.push[0].sink: none is not usable: want a name that sinks has",
		"  a: {kind: queue, push: [{match: x, sink: crm, rate: 5}]}":        `2: namespaces.a.push[0].rate: "5" is not a quota`,
		"  a: {kind: queue, push: [{match: \"x[a]\", sink: crm}]}":          `2: namespaces.a.push[0].match: x[a] is not usable`,
		"  a: {kind: queue, push: [{match: x, sink: crm, concurrency: 0}]}": `2: namespaces.a.push[0].concurrency: 0 is not usable`,
		"  a: {kind: queue, push: [{match: x, backoff: 5s}]}":               `2: namespaces.a.push[0].backoff: "5s" is not a span of waits`,
		"  a: {kind: queue, push: [{mach: x}]}":                             "2: namespaces.a.push[0].mach: ",
	} {
		c, err := loadConfig(t, nil, nil, "namespaces:\n"+file+"\nsinks: {crm: \"null:\"}\n")
		if err == nil {
			t.Errorf("%q is accepted", file)
			continue
		}
		got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
		if !strings.Contains(got, want) {
			t.Errorf("%q: got  %s\nwant %s", file, got, want)
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
