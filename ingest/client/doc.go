// Package client reports events to a Spillway service and forgets them. It needs
// the standard library only.
//
//	c, err := client.New("http://127.0.0.1:8080", client.Config{})
//	if err != nil {
//		return err
//	}
//	defer c.Close(ctx)
//	c.Report("com.acme.kart", []byte(`{"lap":3}`))
//
// [Client.Report] copies the payload into a bounded queue and returns: it never
// waits for the network. Entries go out in batches, up to [Config.Batch] of them or
// when the oldest has waited for [Config.Linger]. What cannot be sent is tried again
// until it is too old, and the oldest entries make room for new ones. Whatever
// becomes of an entry is counted: in [Stats], Reported is always
// Acked + Pending + the sum of Dropped.
//
// Entries of one partition are stored in the order in which they were reported,
// unless the service asks for some of them again. An entry is stored once; where an
// answer was lost, the repeat has the same Idempotency-Key and counts once, too.
//
// The data's way: Report (client.go) → queue.go → dispatch.go → body.go → send.go →
// answer.go.
package client
