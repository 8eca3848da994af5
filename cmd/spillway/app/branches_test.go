package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

const threeNamespaces = `namespaces:
  all: {sink: "namespaces://hot,cold", tokens: ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]}
  hot: {sink: "stdout:"}
  cold: {sink: "null:", tokens: ["sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"]}
`

func TestABranchTakesEntriesOfItsParentAndOfItsOwnTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(path, []byte(threeNamespaces), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newTestApp(t, "--config", path)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stop(t) })
	for _, tt := range []struct {
		namespace, token string
		status           int
	}{{"hot", "", 401}, {"hot", "test", 403}, {"cold", "test", 403}, {"cold", "test2", 200}, {"all", "", 401}, {"all", "test", 200}} {
		req, err := http.NewRequest("POST", "http://"+a.Listen+"/v1/"+tt.namespace+"/kart", strings.NewReader(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		res, err := a.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s with the token %q: got %d, want %d", tt.namespace, tt.token, res.StatusCode, tt.status)
		}
	}
	if line := a.line(t); !strings.Contains(line, `"namespace":"hot","partition":"kart"`) || !strings.Contains(line, `"data":{"n":1}`) {
		t.Errorf("got %s", line)
	}
	redistest.Until(t, 10*time.Second, "cold has the entry of its token and that of its parent", func() bool {
		return a.ledger(t, "cold").Accepted == 2
	})
}
