package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/partition"
)

// DefaultPool is the pool of --redis, and of namespaces that name none.
const DefaultPool = "default"

// Pool is one Redis beside --redis. Pools come from the file only.
type Pool struct {
	URL      string `name:"url"`      // with its placeholders; empty for the default pool
	Volatile bool   `name:"volatile"` // queues may be in it although a crash of it loses jobs
}

// PoolNames are the pools, the default one first.
func (c *Config) PoolNames() []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Pools)),
		func(name string) bool { return name == DefaultPool })
	return append([]string{DefaultPool}, names...)
}

// PoolOf is the pool of a namespace of any kind.
func (c *Config) PoolOf(namespace string) string {
	return cmp.Or(c.Namespaces[namespace].Pool, c.QueueNamespaces[namespace].Pool, c.PHPNamespaces[namespace].Pool, DefaultPool)
}

// PoliciesIn are the policies of the buffers in a pool.
func (c *Config) PoliciesIn(pool string) map[string]partition.Policy {
	policies := map[string]partition.Policy{}
	for name, ns := range c.Namespaces {
		if c.PoolOf(name) == pool {
			policies[name] = ns.Policy()
		}
	}
	return policies
}

// QueuesIn are the namespaces of kind queue in a pool.
func (c *Config) QueuesIn(pool string) []string {
	return slices.DeleteFunc(c.QueueNames(), func(name string) bool { return c.PoolOf(name) != pool })
}

// pools finds each pool that cannot work, and each namespace in a pool that is not there.
func (f *findings) pools() {
	for _, name := range f.PoolNames() {
		p, at := f.Pools[name], "pools."+name
		scheme, _, _ := strings.Cut(p.URL, ":")
		switch {
		case name == DefaultPool && p.URL != "":
			f.wrong(at, "a URL", "volatile alone, because this pool is redis: set that, or give the pool another name")
		case name != DefaultPool && p.URL == "":
			f.wrong(at, "no url", "a URL such as redis://host:6379")
		case scheme == "embedded":
			f.wrong(at, "embedded:", "a Redis, because only redis can be embedded")
		}
	}
	if n := len(f.PoolNames()); n > partition.MaxStores {
		f.wrong("pools", n, fmt.Sprintf("at most %d, with that of redis", partition.MaxStores))
	}
	for _, name := range f.AllNames() {
		pool := f.PoolOf(name)
		if _, known := f.Pools[pool]; !known && pool != DefaultPool {
			f.wrong("namespaces."+name+".pool", pool, "default, or a name that pools has at the top of the file")
		}
	}
}

// PoolSetting is the setting that has the URL of a pool, and that URL, with its placeholders.
func (c *Config) PoolSetting(name string) (key, raw string) {
	if name == DefaultPool {
		return "redis", c.Redis
	}
	return "pools." + name, c.Pools[name].URL
}

// PoolURL is the URL of a pool, with the values of its placeholders.
func (c *Config) PoolURL(name string) (string, error) {
	_, raw := c.PoolSetting(name)
	// Not in the host, which logs show.
	if open := raw[strings.LastIndexByte(raw, '@')+1:]; strings.Contains(open, "{env:") ||
		strings.Contains(open, "{file:") {
		return "", errors.New("a placeholder is not in the user or the password, which end with @")
	}
	return c.Secrets.Fill(raw)
}

// poolChanges are the differences of a pool. One may come and go with its namespaces; the
// URL of one that stays names where its entries lie.
func poolChanges(at string, old, now Pool) []Change {
	switch {
	case old.URL != now.URL:
		return []Change{{at, fmt.Sprintf("%s: %s → %s", at, RedactStore(old.URL), RedactStore(now.URL)), reloadRestart}}
	case old != now:
		return []Change{{at, fmt.Sprintf("%s.volatile: %v → %v", at, old.Volatile, now.Volatile), reloadApplies}}
	}
	return nil
}

// ReplicasOf parses a durability: how many replicas must confirm an entry.
func ReplicasOf(durability string) (int, error) {
	if durability == "async" {
		return 0, nil
	}
	count, ok := strings.CutPrefix(durability, "replica=")
	if n, err := strconv.Atoi(count); ok && err == nil && n >= 1 && n <= partition.MaxReplicas {
		return n, nil
	}
	return 0, fmt.Errorf("durability: %q is neither async nor replica=N", durability)
}
