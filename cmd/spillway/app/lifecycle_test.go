package app

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestAppKeepsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component { return aliveApp{newTestApp(t)} })
}

type aliveApp struct{ *testApp }

func (a aliveApp) Alive(ctx context.Context) error { return live(ctx, a.Listen) }

// live asks a port for /livez.
func live(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("livez: %s", res.Status)
	}
	return nil
}

// A name is resolved while the service starts; that is no failure of the admin port.
func TestASignalWhileServeStartsIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"serve", "--listen=localhost:0", "--admin-listen=localhost:0", "--sink=null:"}
	if code := run(ctx, args, config.Process{Stdin: &bytes.Buffer{}, Stdout: &stdout, Stderr: &stderr, LookupEnv: func(string) (string, bool) { return "", false }}); code != exitOK {
		t.Errorf("exit %d, %s", code, &stderr)
	}
}
