package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// service stands for a real one: the examples are run as tests.
func service() *clienttest.Transport { return clienttest.NewTransport() }

// Three lines: New, Report, Close.
func Example() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service()})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("com.acme.kart", []byte(`{"event":"lap","ms":63210}`))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(c.Close(ctx), c.Stats().Acked)
	// Output: <nil> 1
}

// An event with its own time and id: sinks that remove duplicates do so by the id.
func ExampleClient_ReportAt() {
	network := service()
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: network})
	if err != nil {
		fmt.Println(err)
		return
	}
	happened := time.Now().Add(-2 * time.Second)
	_ = c.ReportAt("com.acme.kart", []byte(`{"event":"buy"}`), happened, "order-7")
	_ = c.Close(context.Background())
	for _, e := range network.Stored() {
		fmt.Println(e.Partition, e.ID, e.Data, e.TS == happened.UnixMilli())
	}
	// Output: com.acme.kart order-7 {"event":"buy"} true
}

// Flush waits until what was reported is stored, such as at the end of a match.
func ExampleClient_Flush() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service(), Linger: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close(context.Background()) }()
	_ = c.Report("match-9", []byte(`{"winner":"red"}`))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	fmt.Println(c.Flush(ctx))
	// Output: <nil>
}

// A namespace with a token, and a word when entries are dropped.
func ExampleConfig() {
	c, err := client.New("https://events.example.com", client.Config{
		Namespace: "kart",
		Token:     "secret",
		OnDrop:    func(why client.Reason, n int64) { fmt.Println("dropped", n, why) },
		Transport: clienttest.NewTransport(clienttest.Step{Status: 401, Code: "unauthorized"}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("com.acme.kart", []byte(`{"event":"lap"}`))
	_ = c.Close(context.Background())
	// Output: dropped 1 rejected
}

// Stats adds up at every moment.
func ExampleClient_Stats() {
	c, err := client.New("http://127.0.0.1:8080", client.Config{Transport: service(), MaxEntry: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Report("kart", []byte(`{"n":1}`))
	fmt.Println(c.Report("kart", []byte(`{"text":"far too much of it"}`)))
	_ = c.Close(context.Background())
	s := c.Stats()
	fmt.Println(s.Reported, s.Acked, s.Pending, s.Dropped[client.TooLarge])
	// Output:
	// client: the payload is larger than MaxEntry
	// 2 1 0 1
}
