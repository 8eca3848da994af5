package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRetireLetsTheNextServerAnswerOpenConnections(t *testing.T) {
	t.Parallel()
	before, after := newFake(), newFake()
	entered, open := before.blockProduce()
	defer open()
	old, next := listenTCP(t, before, longProduceTimeout), listenTCP(t, after, longProduceTimeout)

	idle, err := old.dial() // sent one request
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	ask := func() *http.Response {
		if _, err := io.WriteString(idle, "POST /v1/default/p?ack=none HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(idle), nil)
		if err != nil {
			t.Fatal(err)
		}
		readReply(t, resp)
		return resp
	}
	unused, err := old.dial() // has sent nothing
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	if resp := ask(); resp.Close {
		t.Error("the first answer closes")
	}
	<-entered
	answered := make(chan *reply)
	go func() { answered <- old.post("/v1/default/p", "begun") }()
	eventually(t, func() bool { return old.Requests() == 1 })
	eventually(t, func() bool { return old.Connections() == 3 })

	retired := make(chan error)
	go func() { retired <- old.Retire(t.Context(), next.Server) }()
	eventually(t, func() bool { return old.next.Load() != nil })
	if resp := ask(); !resp.Close {
		t.Error("the connection of the retired server stays open")
	}
	eventually(t, func() bool { return len(after.entries("default/p")) == 1 })
	select {
	case err := <-retired:
		t.Fatalf("retire did not wait: %v", err)
	default:
	}
	open()
	(<-answered).expect(t, 200, "")
	if err := <-retired; err != nil {
		t.Error(err)
	}
	if got := before.entries("default/p"); len(got) != 2 {
		t.Errorf("stored %q before", got)
	}
	idle = unused
	if resp := ask(); !resp.Close {
		t.Error("the connection of the retired server stays open")
	}
	if got := len(before.entries("default/p")); got != 2 {
		t.Errorf("%d entries went to the former store", got)
	}
	if c, err := old.dial(); err == nil {
		_ = c.Close()
		t.Error("the retired server's listener is open")
	}
}

func TestRetireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store := newFake()
	_, open := store.blockProduce()
	defer open()
	old, next := listenTCP(t, store, longProduceTimeout), listenTCP(t, newFake(), nil)
	half, err := old.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "POST /v1/default/p HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n"+strings.Repeat("x", 10_000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return old.Requests() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := old.Retire(ctx, next.Server); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
