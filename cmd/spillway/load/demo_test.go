package load

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestDemoMarksTheEventOfAPerson(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	h := demoHighlighter{&out}
	lines := "{\"namespace\":\"default\",\"partition\":\"kart.eu-1\",\"seq\":1}\n{\"namespace\":\"default\",\"partition\":\"my-game\",\"seq\":1}\n"
	if n, err := h.Write([]byte(lines)); n != len(lines) || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if got := strings.Split(out.String(), "\n"); len(got) != 3 || strings.Contains(got[0], "your event") || !strings.HasSuffix(got[1], "◀ your event") {
		t.Errorf("got %q", got)
	}
}

func TestDemoUsesAFreePortWhenTheDefaultIsInUse(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	address := used.Addr().String()
	var stderr strings.Builder
	if got := portOrFree(address, &stderr); got != "127.0.0.1:0" || !strings.Contains(stderr.String(), address+" is in use") {
		t.Errorf("got %s, %s", got, stderr.String())
	}
	free := redistest.FreeAddr(t)
	if got := portOrFree(free, io.Discard); got != free {
		t.Errorf("got %s, want %s", got, free)
	}
}
