package partition

// Config is what a Store needs to know.
type Config struct {
	// URL says which Redis.
	//
	//	embedded:                                  miniredis in this process, gone with it
	//	redis://[user:password@]host:port[/db]     one server
	//	rediss://…                                 the same over TLS
	//	redis-sentinel://h1,h2,h3/master[/db]      the master that the sentinels name
	//	redis-cluster://h1,h2,h3                   Redis Cluster
	URL string
	// Prefix begins every key, as in "sw". Two deployments may share a Redis under
	// different prefixes.
	Prefix string
	// Replicas is how many replicas must have confirmed a produce before it is
	// acknowledged, 0 to MaxReplicas; 0: none, the primary's answer is enough. Where fewer
	// confirm within a second its outcome is unknown. It holds for this process:
	// give all that share a Redis the same. The embedded store has no replicas.
	Replicas int
	// Namespaces and their policies; at least one.
	Namespaces map[string]Policy
}
