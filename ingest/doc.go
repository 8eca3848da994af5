// Package ingest takes events over HTTP, checks each of them, and answers once
// they are in the store.
//
// A request takes these steps, and calls go only down this list:
//
//	transport     accept the connection, within MaxConns
//	skipbody.go   check the headers of a large body before it is read
//	handle.go     run the next steps, and recover from panics
//	route.go      find the route by method and path; transport checks the headers
//	admit.go      check namespace, token and limits
//	produce.go    run the next steps of a produce request
//	memory        read the body, decompress it, reserve its memory
//	sdk.go        the same for SDKs of other vendors, with the adapters of protocol
//	split.go      cut the body into entries, and encode them
//	request.go    the entries, grouped by partition
//	lanes.go      choose the lane of each partition
//	lane.go       queue, and flush what waits
//	flush.go      cut what waits into one call of the store
//	answer.go     say what became of the entries
//	errors.go     which code an error of the store has, and how it is answered
//
// DESIGN.md draws it.
//
// A server lives between Start and Stop:
//
//	s, err := ingest.New(ingest.DefaultConfig(), store, registry, log)
//	…
//	s.SetListener(listener)
//	err = s.Start(ctx)
//	…
//	err = s.Stop(ctx)
package ingest
