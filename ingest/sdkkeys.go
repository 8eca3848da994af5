package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/partition"
)

// maxWriteKey bounds a write key, in bytes.
const maxWriteKey = 256

// SDK says how a namespace takes events of other vendors' SDKs: Segment, RudderStack,
// PostHog, Amplitude.
type SDK struct {
	// WriteKeys are the keys that the SDKs send. A key is of one namespace.
	WriteKeys []WriteKey
	// PartitionPaths say where an event names its partition, the first that does counts:
	// at most 8 paths such as properties.game. Default: those of the protocol.
	PartitionPaths []string
}

// WriteKey is what an SDK sends. Anyone may know it, and it opens no other route.
type WriteKey struct {
	// Key is 1 to 256 printable characters without spaces. Metrics and errors show keyLabel of it.
	Key string
	// Rate is how many events the key may send; default none, no limit. A request counts
	// as many as its events.
	Rate Quota
	// NewPartitions is as of a Token; default none, no limit. Events beyond it are dropped.
	NewPartitions Quota
}

// unnamedPartition is that of events that name none.
const unnamedPartition = "default"

// sdkNamespace is what a key opens.
type sdkNamespace struct {
	namespace *partition.Namespace
	paths     protocol.Paths // nil: those of the protocol
	origins   *origins       // whose pages may read its answers; nil: none
	limits    *key           // of the write key; nil: none
}

// writeKeys finds namespaces by the keys of SDKs. It never changes.
type writeKeys struct {
	byKey map[string]*sdkNamespace
	// byName is empty unless the name of a namespace is its key.
	byName map[string]*sdkNamespace
}

// newWriteKeys needs a valid Config.
func newWriteKeys(cfg Config, store Store, origins map[string]*origins,
	m *metrics) (writeKeys, error) {
	w := writeKeys{byKey: map[string]*sdkNamespace{}, byName: map[string]*sdkNamespace{}}
	for name, sdk := range cfg.SDKs {
		ns := store.Namespace(name)
		if ns == nil {
			return w, partition.Wrong("write_keys", name, "a namespace that the store has")
		}
		of := &sdkNamespace{namespace: ns, origins: origins[name]}
		of.paths, _ = protocol.ParsePaths(sdk.PartitionPaths) // Validate checked them
		for _, k := range sdk.WriteKeys {
			opened := *of
			if k.Rate.Count > 0 || k.NewPartitions.Count > 0 {
				opened.limits = &key{namespace: name, limits: newLimits(Token{Name: keyLabel(k.Key), Rate: k.Rate,
					NewPartitions: k.NewPartitions}, name, cfg.MaxEntries, m)}
			}
			w.byKey[k.Key] = &opened
		}
		if len(cfg.Tokens[name]) == 0 && !slices.Contains(cfg.Closed, name) {
			w.byName[name] = of
		}
	}
	if !cfg.NamespaceKeys || len(w.byKey) > 0 {
		clear(w.byName)
	}
	return w, nil
}

// none reports whether no key opens anything.
func (w *writeKeys) none() bool { return len(w.byKey)+len(w.byName) == 0 }

// find returns what a key opens, or nil.
func (w *writeKeys) find(key string) *sdkNamespace {
	if of := w.byKey[key]; of != nil {
		return of
	}
	return w.byName[key]
}

// validateSDKs names the settings as the file does.
func (c Config) validateSDKs() error {
	var v partition.Validation
	owners := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.SDKs)) { // the same errors every time
		sdk, at := c.SDKs[name], "namespaces."+name+"."
		for _, k := range sdk.WriteKeys {
			other, taken := owners[k.Key]
			v.Check(validWriteKey(k.Key), at+"write_keys", keyLabel(k.Key),
				"1 to 256 printable characters without spaces")
			v.Check(!taken, at+"write_keys", keyLabel(k.Key), "another key, because namespace "+other+" lists this one")
			owners[k.Key] = name
		}
		_, err := protocol.ParsePaths(sdk.PartitionPaths)
		v.Check(err == nil, at+"partition_paths", fmt.Sprintf("%.200q", sdk.PartitionPaths),
			"at most 8 paths such as properties.game, each of 1 to 8 keys and at most 128 bytes")
	}
	return v.Err()
}

// keyLabel stands for a write key, which may be an exporter's secret, where people read it: the first
// 8 hexadecimal digits of its SHA-256, after sha256:.
func keyLabel(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:4])
}

func validWriteKey(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return len(key) > 0 && len(key) <= maxWriteKey
}
