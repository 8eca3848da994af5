// Package ingest is the way in: it takes events over HTTP, judges each of them,
// and answers once they are in the store.
//
// A request passes these stations, one file each:
//
//	listener.go   connections, bounded
//	route.go      what can be judged without the body: framing, method, path, namespace
//	options.go    query and headers
//	receive.go    the body, read into memory that is reserved as it arrives
//	body.go       content encoding, with its own limit
//	produce.go    one partition: NDJSON, JSON array, envelope, one opaque entry
//	mixed.go      items that name their partition
//	timestamp.go  when an event happened on the store's clock
//	request.go    the entries, encoded into memory of our own
//	footprint.go  what that memory is charged as
//	take.go       from options and body to lanes and answer
//	commit.go     group commit: lanes share round trips to the store
//	flush.go      one round trip: parts grouped by partition, results shared out
//	losses.go     what a shutdown loses of ?ack=none
//	errors.go     failure → status, code, text
//
// A server lives between Serve and Shutdown:
//
//	s, err := ingest.New(ingest.DefaultConfig(), store, registry, log)
//	…
//	go s.Serve(listener)
//	…
//	err = s.Shutdown(ctx)
package ingest
