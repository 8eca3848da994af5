package ingest_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

// A server on an embedded store answers a request once the entry is stored.
func Example() {
	url, stop := start(ingest.DefaultConfig())
	defer stop()
	post(url+"/v1/default/kart-7", `{"lap":3}`)
	// Output:
	// 200 {"accepted":1,"evicted":0,"rejected":0,"depth":1,"capacity":10000,"results":[]}
}

// A namespace with tokens takes entries only from clients that send one. The
// configuration holds the hash of the token, never the token.
func Example_token() {
	cfg := ingest.DefaultConfig()
	cfg.Tokens = map[string][]ingest.Token{"default": {{Hash: sha256.Sum256([]byte("kart-secret")), Name: "karts"}}}
	url, stop := start(cfg)
	defer stop()
	post(url+"/v1/default/kart-7", `{"lap":3}`)
	post(url+"/v1/default/kart-7", `{"lap":3}`, "Authorization", "Bearer kart-secret")
	// Output:
	// 401 {"error":"unauthorized","message":"send Authorization: Bearer with a token of this namespace"}
	// 200 {"accepted":1,"evicted":0,"rejected":0,"depth":1,"capacity":10000,"results":[]}
}

// The entries of a mixed batch name their partitions. One that cannot be stored
// is listed by its index, and the others are stored.
func Example_mixedBatch() {
	url, stop := start(ingest.DefaultConfig())
	defer stop()
	post(url+"/v1/default", `{"partition":"kart-7","data":{"lap":3}}
{"partition":"kart-8","id":"order-81","data":{"lap":1}}
{"partition":"kart 9","data":{"lap":2}}
`, "Content-Type", "application/x-ndjson")
	// Output:
	// 200 {"accepted":2,"evicted":0,"rejected":1,"results":[{"i":2,"result":"drop","reason":"bad_partition"}]}
}

// A request that is sent again with its Idempotency-Key gets the answer of the
// first one, and stores nothing.
func Example_idempotencyKey() {
	url, stop := start(ingest.DefaultConfig())
	defer stop()
	for range 2 {
		post(url+"/v1/default/kart-7", `{"lap":3}`, "Idempotency-Key", "4f1c")
	}
	post(url+"/v1/default/kart-7", `{"lap":4}`, "Idempotency-Key", "9a02")
	// Output:
	// 200 {"accepted":1,"evicted":0,"rejected":0,"depth":1,"capacity":10000,"results":[]}
	// 200 {"accepted":1,"evicted":0,"rejected":0,"depth":1,"capacity":10000,"results":[]}
	// 200 {"accepted":1,"evicted":0,"rejected":0,"depth":2,"capacity":10000,"results":[]}
}

// The SDKs of Segment, RudderStack, PostHog and Amplitude send unmodified. Their key
// says which namespace, and their events say which partition.
func Example_sdk() {
	cfg := ingest.DefaultConfig()
	cfg.SDKs = map[string]ingest.SDK{"default": {WriteKeys: []ingest.WriteKey{{Key: "kart-web"}}, PartitionPaths: []string{"properties.game"}}}
	url, stop := start(cfg)
	defer stop()
	post(url+"/posthog/batch/", `{"api_key":"kart-web","batch":[{"event":"lap","properties":{"game":"kart-7"}}]}`)
	post(url+"/posthog/batch/", `{"api_key":"another","batch":[{"event":"lap","properties":{"game":"kart-7"}}]}`)
	// Output:
	// 200 {"status":1}
	// 401 {"type":"authentication_error","code":"invalid_api_key","detail":"Project API key invalid: no namespace lists it under write_keys.","attr":null}
}

// start serves the namespace "default" of an embedded store on a free port.
func start(cfg ingest.Config) (url string, stop func()) {
	store, err := partition.Open(partition.Config{
		URL: "embedded:", Prefix: "sw", Namespaces: map[string]partition.Policy{"default": partition.DefaultPolicy()},
	}, prometheus.NewRegistry(), zap.NewNop())
	check(err)
	check(store.Ping(context.Background())) // the first answer brings the store's time
	server, err := ingest.New(cfg, store, prometheus.NewRegistry(), zap.NewNop())
	check(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server.SetListener(ln)
	check(server.Start(context.Background()))
	return "http://" + ln.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		check(server.Stop(ctx))
		check(store.Close())
	}
}

// post sends a body, with pairs of header names and values, and prints the answer.
func post(url, body string, headers ...string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	check(err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(err)
	fmt.Printf("%d %s\n", resp.StatusCode, answer)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
