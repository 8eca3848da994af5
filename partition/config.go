package partition

import (
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/drops"
)

// MaxReplicas is the upper bound of Config.Replicas.
const MaxReplicas = backend.MaxReplicas

// What is wrong with a configuration, and how outages are logged, is the same for all that
// stands on a back-end.
type (
	FieldError = backend.FieldError
	OutageLog  = backend.OutageLog
)

// Wrong makes a FieldError.
func Wrong(field string, value any, want string) *FieldError {
	return backend.Wrong(field, value, want)
}

// Config is the configuration of a Store. Open returns a *FieldError for a value that
// it cannot use. No field has a default but Replicas.
type Config struct {
	// URL is the address of Redis, in one of these forms.
	//
	//	embedded:                                  miniredis in this process, gone with it
	//	redis://[user:password@]host:port[/db]     one server
	//	rediss://…                                 the same over TLS
	//	redis-sentinel://h1,h2,h3/master[/db]      the master that the sentinels name
	//	redis-cluster://h1,h2,h3                   Redis Cluster
	URL string
	// Prefix begins every key: 1 to 64 letters, digits, '.', '_' or '-'. Deployments
	// with different prefixes may share a Redis.
	Prefix string
	// Replicas is how many replicas must confirm a produce before it is acknowledged:
	// 0 to MaxReplicas; default 0, the primary alone. If fewer confirm within 1s, the
	// outcome is unknown and the error is ErrUnconfirmed. The setting belongs to this
	// process; processes that share a Redis should have the same. With the embedded
	// store it must be 0.
	Replicas int
	// Follows is a Store with the same URL that this one replaces; default none. An
	// embedded store is the same for both then, and gone when both are closed.
	Follows *Store
	// Backend is an open back-end that other stores use, too; default nil, one of this
	// Store's own. Its owner closes it after the Store. URL, Replicas and Follows are its.
	Backend *backend.Backend
	// Namespaces are the policies by the name of their namespace; at least one.
	Namespaces map[string]Policy
	// Drops keeps samples of the entries that this process evicts or expires; default nil,
	// none.
	Drops *drops.Log
}
