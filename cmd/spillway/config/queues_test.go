package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileMayHaveQueuesAlone(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, "namespaces:\n  mail: {kind: queue}\n")
	if err != nil || len(c.Namespaces) != 0 || len(c.QueueNamespaces) != 1 {
		t.Errorf("got %v, buffers %v", err, c.Names())
	}
}

func TestErrorsOfQueueSettingsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"  a: {kind: stack}\n":                                                 `2: namespaces.a.kind: "stack" is neither buffer nor queue`,
		"  a: {kind: queue, capacity: 5}\n":                                    "2: namespaces.a.capacity: ",
		"  a: {max_jobs: 5}\n":                                                 "2: namespaces.a.max_jobs: ",
		"  a: {kind: queue, max_jobs: many}\n":                                 `2: namespaces.a.max_jobs: "many" is not a whole number`,
		"  a: {kind: queue, max_jobs: 0}\n":                                    "2: namespaces.a.max_jobs: 0 is not usable",
		"  a: {kind: queue, shards: 0}\n":                                      "2: namespaces.a.shards: 0 is not usable",
		"  a: {kind: queue, dead: bury}\n":                                     "2: namespaces.a.dead: bury is not usable: want keep or drop",
		"  a: {kind: queue, spread: {x: 2}}\n":                                 "2: namespaces.a.spread",
		"  a: {kind: queue, spread: [x]}\n":                                    "2: namespaces.a.spread: not a map",
		"  a: {kind: queue, push: {match: x}}\n":                               "2: namespaces.a.push: not a list, or empty",
		"  a: {kind: queue, push: [{match: x}]}\n":                             `2: namespaces.a.push[0].sink:  is not usable: want a name`,
		"  a: {kind: queue, push: [{match: x, sink: none}]}\n":                 "2: namespaces.a.push[0].sink: none is not usable: want a name that sinks has",
		"  a: {kind: queue, push: [{match: x, sink: crm, rate: 5}]}":           `2: namespaces.a.push[0].rate: unknown key`,
		"  a: {kind: queue, queues: [{match: x, rate: 5}]}":                    `2: namespaces.a.queues[0].rate: "5" is not what a rule can say: write a rate such as 50/s`,
		"  a: {kind: queue, queues: [{match: x, rate: 0}]}":                    `2: namespaces.a.queues[0].rate: "0" is not what a rule can say`,
		"  a: {kind: queue, queues: [{match: x, rate: 100001/s}]}":             `2: namespaces.a.queues[0].rate: "100001/s" is not what a rule can say`,
		"  a: {kind: queue, queues: [{match: x, burst: 5, tries: 2}]}":         `2: namespaces.a.queues[0].burst: 5 is not usable: want 1 to 10000 jobs, beside a rate`,
		"  a: {kind: queue, queues: [{match: x}]}":                             `namespaces.a.queues[0].rate: nothing is not usable: want rate, tries or keep_trace`,
		"  a: {kind: queue, queues: [x]}":                                      `2: namespaces.a.queues[0]: not a map`,
		"  a: {kind: queue, queues: [{match: \"a b\", tries: 2}]}":             `2: namespaces.a.queues[0].match: a b is not usable`,
		"  a: {kind: queue, push: [{match: \"x[a]\", sink: crm}]}":             `2: namespaces.a.push[0].match: x[a] is not usable`,
		"  a: {kind: queue, push: [{match: x, sink: crm, writes: 0}]}":         `2: namespaces.a.push[0].writes: 0 is not usable`,
		"  a: {kind: queue, push: [{match: x, writes: 64..1}]}":                `2: namespaces.a.push[0].writes: "64..1" is not a number of writes: write one such as 8, or the least, from 1, and the most, such as 1..64`,
		"  a: {kind: queue, push: [{match: x, writes: 0..4}]}":                 `2: namespaces.a.push[0].writes: "0..4" is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: 8..8}]}":                 `2: namespaces.a.push[0].writes: "8..8" is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: 1..}]}":                  `2: namespaces.a.push[0].writes: "1.." is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: auto}]}":                 `2: namespaces.a.push[0].writes: "auto" is not a number of writes`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..1001, target: 1s}]}": `2: namespaces.a.push[0].writes: 1001 is not usable: want 1 to 1000`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..64}]}":               `2: namespaces.a.push[0].target: 0s is not usable: want 1ms to 10m, for writes is a range`,
		"  a: {kind: queue, push: [{sink: crm, target: 1s}]}":                  `2: namespaces.a.push[0].target: 1s is not usable: want none, for writes is not a range such as 1..64`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..4, target: -1s}]}":   `2: namespaces.a.push[0].target: -1s is not usable`,
		"  a: {kind: queue, push: [{match: x, concurrency: 8}]}":               "2: namespaces.a.push[0].concurrency: unknown key",
		"  a: {kind: queue, push: [{match: x, backoff: 5s}]}":                  `2: namespaces.a.push[0].backoff: "5s" is not a span of waits`,
		"  a: {kind: queue, push: [{mach: x}]}":                                "2: namespaces.a.push[0].mach: ",
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
