// Package spillway is the client of a Spillway service. It needs the standard library only.
//
// A [Reporter] reports events and forgets them:
//
//	r, err := spillway.NewReporter("http://127.0.0.1:8080", spillway.ReporterConfig{})
//	if err != nil {
//		return err
//	}
//	defer r.Close(ctx)
//	r.Report("com.acme.kart", []byte(`{"lap":3}`))
//
// [Reporter.Report] copies the payload into a bounded queue and returns: it never
// waits for the network. Entries go out in batches, up to [ReporterConfig.Batch] of them or
// when the oldest has waited for [ReporterConfig.Linger]. What cannot be sent is tried again
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
// [Queues] is for namespaces of queues, whose jobs stay until they are acked. It keeps nothing
// itself: each call is a request, and its error says what became of it.
//
//	q, err := spillway.NewQueues("http://127.0.0.1:8080", spillway.QueuesConfig{Namespace: "mail"})
//	…
//	p, err := q.Publish(ctx, "welcome", []byte(`{"to":"ada"}`), spillway.PublishOptions{Delay: time.Minute})
//	…
//	err = q.Work(ctx, []string{"welcome"}, func(ctx context.Context, job spillway.Job) error {
//		return send(ctx, job.Payload)
//	}, spillway.WorkerConfig{Concurrency: 8}) // OnRequestError is told of claims that fail; default slog
//
// The way of an entry: Report (reporter.go) → queue.go → dispatch.go → body.go → send.go →
// answer.go.
package spillway
