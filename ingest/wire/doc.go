// Package wire defines what is sent over the data port: error codes, request bodies,
// headers and answers. It imports neither an HTTP server nor Redis, so that clients
// can use it too.
//
// Decoders return views of their input and copy nothing. Do not change the input
// while the views are in use, and copy what must outlive it. Encoders append.
//
//	lines := wire.SplitLines(body)
//	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
//		…
//	}
package wire
