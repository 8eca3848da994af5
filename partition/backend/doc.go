// Package backend is one Redis, for whatever keeps data in it: a server, the master that
// sentinels name, a cluster, or a miniredis in this process. It opens the connections, runs
// scripts and reads their replies in place, puts every error into a class that says what the
// caller may do next, waits for replicas, follows the server's clock, and refuses calls on
// shards that cannot be reached. It knows nothing of what the scripts store: package
// partition keeps the buffer on it.
package backend
