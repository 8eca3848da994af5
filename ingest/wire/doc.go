// Package wire is the form of what travels over the data port: codes, request
// bodies, headers and answers. It knows nothing of HTTP servers or of Redis, so
// that a client may use it too.
//
// Decoders return views of their input and copy nothing: keep the input still
// while the views are in use, and copy what must outlive it. Encoders append.
//
//	lines := wire.SplitLines(body)
//	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
//		…
//	}
package wire
