package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/php"
)

const phpPools = "pools: {shop: \"redis://127.0.0.1:6380/10\"}\n"

func TestANamespaceOfPHPHasTheDefaultsOfItsFlavor(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, phpPools+"namespaces:\n  a: {kind: php, pool: shop, flavor: laravel, queues: [default, {match: \"mail*\", tries: 5, ttr: 5m}]}\n"+
		"  b: {kind: php, pool: shop, flavor: think3, retry_after: never, poll: 250ms, queues: [x]}\n")
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.PHPNamespaces["a"].Policy(), c.PHPNamespaces["b"].Policy()
	if a.Tries != 1 || a.RetryAfter != 90*time.Second || len(a.Rules) != 2 || a.Rules[1].Tries != 5 || a.TTR != time.Minute || len(a.Leases) != 1 || a.Leases[0].TTR != 5*time.Minute {
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
		"{kind: php, pool: shop, flavor: laravel, queues: [{match: x, ttr: 1ms}]}": "namespaces.a.queues: x: 1ms is not usable: want a ttr of 1s to 24h",
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
