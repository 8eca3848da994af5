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
// Entries of one partition are stored in the order in which they were reported. An entry is
// stored once: where an answer was lost, or the service asks for entries again, the repeat has the
// same bytes and Idempotency-Key. The service remembers a key for 2m. What is not known to be
// stored by then is dropped as [Unknown].
//
// A [Poster] is for a program that waits for what becomes of its entries, such as one that sends a
// file.
//
// [Jobs] is for namespaces of queues, whose jobs stay until they are acked. It keeps nothing
// itself: each call is a request, and its error says what became of it.
//
//	j, err := client.NewJobs("http://127.0.0.1:8080", client.JobsConfig{Namespace: "mail"})
//	…
//	p, err := j.Publish(ctx, "welcome", []byte(`{"to":"ada"}`), client.PublishOptions{Delay: time.Minute})
//	…
//	err = j.Work(ctx, []string{"welcome"}, func(ctx context.Context, job client.Job) error {
//		return send(ctx, job.Payload)
//	}, client.WorkerConfig{Concurrency: 8})
//
// The way of an entry: Report (client.go) → queue.go → dispatch.go → body.go → send.go →
// answer.go.
package client
