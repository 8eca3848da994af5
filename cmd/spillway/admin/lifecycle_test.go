package admin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestServerKeepsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component {
		return aliveServer{New(Config{Listen: "127.0.0.1:0", Source: func() View { return View{} }, Failed: func(err error) { t.Error(err) }}, zap.NewNop())}
	})
}

func TestAccountsKeepTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component {
		store := &fakeStore{overview: func() (partition.Overview, error) { return partition.Overview{}, nil }}
		return aliveAccounts{NewAccounts(store, prometheus.NewRegistry(), zap.NewNop())}
	})
}

type aliveServer struct{ *Server }

func (s aliveServer) Alive(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Address()+"/livez", nil)
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

type aliveAccounts struct{ *Accounts }

func (a aliveAccounts) Alive(ctx context.Context) error {
	for ctx.Err() == nil {
		if testutil.CollectAndCount(a) > 0 {
			return nil
		}
	}
	return ctx.Err()
}

func TestTheConsoleWaitsForAnActToItsEnd(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("console/page/api.js")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)const actPatience = ([0-9_]+);.*AbortSignal\.timeout\(actPatience\)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("api.js sets no timeout for acts")
	}
	ms, err := strconv.Atoi(strings.ReplaceAll(string(found[1]), "_", ""))
	if patience := time.Duration(ms) * time.Millisecond; err != nil || patience <= actTimeout {
		t.Errorf("the console waits %v, an act takes up to %v", patience, actTimeout)
	}
}
