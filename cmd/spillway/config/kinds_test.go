package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/php"
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
		"  a: {kind: stack}\n":                                                      `2: namespaces.a.kind: "stack" is neither buffer nor queue`,
		"  a: {kind: queue, capacity: 5}\n":                                         "2: namespaces.a.capacity: ",
		"  a: {max_jobs: 5}\n":                                                      "2: namespaces.a.max_jobs: ",
		"  a: {kind: queue, max_jobs: many}\n":                                      `2: namespaces.a.max_jobs: "many" is not a whole number`,
		"  a: {kind: queue, max_jobs: 0}\n":                                         "2: namespaces.a.max_jobs: 0 is not usable",
		"  a: {kind: queue, shards: 0}\n":                                           "2: namespaces.a.shards: 0 is not usable",
		"  a: {kind: queue, dead: bury}\n":                                          "2: namespaces.a.dead: bury is not usable: want keep or drop",
		"  a: {kind: queue, spread: {x: 2}}\n":                                      "2: namespaces.a.spread",
		"  a: {kind: queue, spread: [x]}\n":                                         "2: namespaces.a.spread: not a map",
		"  a: {kind: queue, push: {match: x}}\n":                                    "2: namespaces.a.push: not a list, or empty",
		"  a: {kind: queue, push: [{match: x}]}\n":                                  `2: namespaces.a.push[0].sink:  is not usable: want a name`,
		"  a: {kind: queue, push: [{match: x, sink: none}]}\n":                      "2: namespaces.a.push[0].sink: none is not usable: want a name that sinks has",
		"  a: {kind: queue, push: [{match: x, sink: crm, rate: 5}]}":                `2: namespaces.a.push[0].rate: unknown key`,
		"  a: {kind: queue, queues: [{match: x, rate: 5}]}":                         `2: namespaces.a.queues[0].rate: "5" is not what a rule can say: write a rate such as 50/s`,
		"  a: {kind: queue, queues: [{match: x, rate: 0}]}":                         `2: namespaces.a.queues[0].rate: "0" is not what a rule can say`,
		"  a: {kind: queue, queues: [{match: x, rate: 100001/s}]}":                  `2: namespaces.a.queues[0].rate: "100001/s" is not what a rule can say`,
		"  a: {kind: queue, queues: [{match: x, burst: 5, tries: 2}]}":              `2: namespaces.a.queues[0].burst: 5 is not usable: want 1 to 10000 jobs, beside a rate`,
		"  a: {kind: queue, queues: [{match: x}]}":                                  `namespaces.a.queues[0].match: x is not usable: want rate, concurrency, tries, ttr, delay, keep_trace or keep_acked`,
		"  a: {kind: queue, queues: [{match: x, concurrency: 0}]}":                  `2: namespaces.a.queues[0].match: x is not usable`,
		"  a: {kind: queue, queues: [{match: x, concurrency: 4294967296}]}":         `2: namespaces.a.queues[0].concurrency: 4294967296 is not usable: want 1 to 10000 leases`,
		"  a: {kind: queue, shards: 2, spread: {x: 2}, queues: [{concurrency: 2}]}": `2: namespaces.a.queues[0].concurrency: 2 is not usable: want no such rule for x, which has a spread`,
		"  a: {kind: queue, access_keys: [{id: k}]}":                                `2: namespaces.a.access_keys[0]: write an id that no other key has, and a secret`,
		"  a: {kind: queue, access_keys: [{id: k, secret: in-the-file-itself}]}":    `2: namespaces.a.access_keys[0]: write an id`,
		"  a: {kind: queue, access_keys: [{id: k, secret: \"{file:/none}\"}]}":      `2: namespaces.a.access_keys[0]: {file:/none}: stat /none`,
		"  a: {kind: queue, queues: [x]}":                                           `2: namespaces.a.queues[0]: not a map`,
		"  a: {kind: queue, queues: [{match: \"a b\", tries: 2}]}":                  `2: namespaces.a.queues[0].match: a b is not usable`,
		"  a: {kind: queue, push: [{match: \"x[a]\", sink: crm}]}":                  `2: namespaces.a.push[0].match: x[a] is not usable`,
		"  a: {kind: queue, push: [{match: x, sink: crm, writes: 0}]}":              `2: namespaces.a.push[0].writes: 0 is not usable`,
		"  a: {kind: queue, push: [{match: x, writes: 64..1}]}":                     `2: namespaces.a.push[0].writes: "64..1" is not a number of writes: write one such as 8, or the least, from 1, and the most, such as 1..64`,
		"  a: {kind: queue, push: [{match: x, writes: 0..4}]}":                      `2: namespaces.a.push[0].writes: "0..4" is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: 8..8}]}":                      `2: namespaces.a.push[0].writes: "8..8" is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: 1..}]}":                       `2: namespaces.a.push[0].writes: "1.." is not a number of writes`,
		"  a: {kind: queue, push: [{match: x, writes: auto}]}":                      `2: namespaces.a.push[0].writes: "auto" is not a number of writes`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..1001, target: 1s}]}":      `2: namespaces.a.push[0].writes: 1001 is not usable: want 1 to 1000`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..64}]}":                    `2: namespaces.a.push[0].target: 0s is not usable: want 1ms to 10m, for writes is a range`,
		"  a: {kind: queue, push: [{sink: crm, target: 1s}]}":                       `2: namespaces.a.push[0].target: 1s is not usable: want none, for writes is not a range such as 1..64`,
		"  a: {kind: queue, push: [{sink: crm, writes: 1..4, target: -1s}]}":        `2: namespaces.a.push[0].target: -1s is not usable`,
		"  a: {kind: queue, push: [{match: x, concurrency: 8}]}":                    "2: namespaces.a.push[0].concurrency: unknown key",
		"  a: {kind: queue, push: [{match: x, backoff: 5s}]}":                       `2: namespaces.a.push[0].backoff: "5s" is not a span of waits`,
		"  a: {kind: queue, push: [{mach: x}]}":                                     "2: namespaces.a.push[0].mach: ",
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

const phpPools = "pools: {shop: \"redis://127.0.0.1:6380/10\"}\n"

func TestANamespaceOfPHPHasTheDefaultsOfItsFlavor(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, phpPools+"namespaces:\n  a: {kind: php, pool: shop, flavor: laravel, queues: [default, {match: \"mail*\", tries: 5, ttr: 5m}]}\n"+
		"  b: {kind: php, pool: shop, flavor: think3, retry_after: never, poll: 250ms, queues: [x]}\n")
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.PHPNamespaces["a"].Policy(), c.PHPNamespaces["b"].Policy()
	if a.Tries != 1 || a.RetryAfter != 90*time.Second || len(a.Rules) != 2 || a.Rules[1].Tries != 5 || a.TTR != time.Minute || time.Duration(a.Rules[1].TTR) != 5*time.Minute {
		t.Errorf("got %+v", a)
	}
	if b.Flavor != php.Think3 || b.Tries != 0 || b.RetryAfter != 0 || b.Poll != 250*time.Millisecond || len(c.Namespaces) != 0 {
		t.Errorf("got %+v", b)
	}
	if got := c.PHPIn("shop"); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestATokenOfPHPConsumesUnlessItSaysMore(t *testing.T) {
	t.Parallel()
	const hash = `"sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"`
	const other = `"sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"`
	c, err := loadConfig(t, nil, nil, phpPools+"namespaces:\n  a:\n    kind: php\n    pool: shop\n    flavor: laravel\n    queues: [x]\n"+
		"    tokens: ["+hash+", {hash: "+other+", name: web, rights: [produce, consume], classes: ['App\\Jobs\\*'], raw: true}]\n")
	if err != nil {
		t.Fatal(err)
	}
	tokens := c.Ingest().Tokens["a"]
	if r := tokens[0].Rights; !r.Limited || !r.Consume || r.Produce || r.Raw {
		t.Errorf("got %+v", r)
	}
	if r := tokens[1].Rights; !r.Produce || !r.Consume || !r.Raw || !r.MayRun(`App\Jobs\Mail`) || r.MayRun(`Evil\Jobs`) {
		t.Errorf("got %+v", r)
	}
}

func TestErrorsOfPHPSettingsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"{kind: php, pool: shop, queues: [x]}":                                     "namespaces.a.flavor:  is not usable: want think3, think2 or laravel",
		"{kind: php, pool: shop, flavor: laravel}":                                 "namespaces.a.queues: 0 is not usable: want 1 to 256 names",
		"{kind: php, flavor: laravel, queues: [x]}":                                "namespaces.a.pool: default is not usable: want a pool of its own",
		"{kind: php, pool: none, flavor: laravel, queues: [x]}":                    "namespaces.a.pool: none is not usable",
		"{kind: php, pool: shop, flavor: laravel, queues: [x], shards: 2}":         "3: namespaces.a.shards: unknown key: it is for another kind",
		"{kind: php, pool: shop, flavor: laravel, queues: [x], capacity: 2}":       "3: namespaces.a.capacity: unknown key: it is for another kind",
		"{kind: php, pool: shop, flavor: laravel, queues: [{match: x, ttr: 1ms}]}": "namespaces.a.queues[0].ttr: 1ms is not usable: want 1s to 24h",
		"{flavor: laravel}": "3: namespaces.a.flavor: unknown key: it is for queues of PHP's",
		"{kind: php, pool: shop, flavor: laravel, queues: [x], retry_after: soon}":                                                                                              `3: namespaces.a.retry_after: "soon" is not a duration: write one with its unit, such as 90s, or never`,
		"{kind: php, pool: shop, flavor: laravel, queues: [x], poll: 1ms}":                                                                                                      "3: namespaces.a.poll: 1ms is not usable",
		"{kind: php, pool: shop, flavor: laravel, queues: [\"a b\"]}":                                                                                                           "namespaces.a.queues[0].match: a b is not usable",
		"{kind: php, pool: shop, flavor: laravel, queues: [{match: x, rate: 5/s}]}":                                                                                             "3: namespaces.a.queues[0].rate: unknown key",
		"{kind: php, pool: shop, flavor: laravel, queues: [x], push: [{sink: crm, accept: some}]}":                                                                              "3: namespaces.a.push[0].accept: some is not usable: want all",
		"{kind: queue, push: [{sink: crm, accept: all}]}":                                                                                                                       "3: namespaces.a.push[0].accept: all is not usable: want accept in kind php alone",
		"{kind: php, pool: shop, flavor: laravel, queues: [x], tokens: [{hash: \"sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\", rights: [write]}]}": `rights: "write" is no right: write some of [produce, consume]`,
		"{kind: php, pool: shop, flavor: laravel, queues: [x], tokens: [{hash: \"sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\", raw: true}]}":       "classes and raw are of who may publish",
	} {
		c, err := loadConfig(t, nil, nil, phpPools+"namespaces:\n  a: "+file+"\nsinks: {crm: \"null:\"}\n")
		if err == nil {
			t.Errorf("%q is accepted", file)
			continue
		}
		if got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), ""); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", file, got, want)
		}
	}
}

func TestAPoolOfPHPHoldsNothingElse(t *testing.T) {
	t.Parallel()
	_, err := loadConfig(t, nil, nil, phpPools+"namespaces:\n  a: {kind: php, pool: shop, flavor: laravel, queues: [x]}\n  b: {kind: queue, pool: shop}\n")
	if err == nil || !strings.Contains(err.Error(), "want a pool of its own") {
		t.Errorf("got %v", err)
	}
}
