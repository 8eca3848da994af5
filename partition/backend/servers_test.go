package backend

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestCheckPersistenceWantsAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		url  string
		want error
	}{
		"on":         {redistest.Start(t, "--appendonly", "yes").URL(), nil},
		"off":        {redistest.Start(t, "--appendonly", "no").URL(), ErrIncompatible},
		"embedded":   {"embedded:", nil},
		"not there":  {"redis://" + redistest.FreeAddr(t), ErrUnavailable},
		"no cluster": {"redis-cluster://" + redistest.Start(t).Addr, ErrBroken},
	} {
		b, err := Open(Config{URL: row.url}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		err = b.CheckPersistence(t.Context())
		if !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
		if row.want == ErrIncompatible && errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if row.want == ErrIncompatible && !strings.Contains(err.Error(), "CONFIG SET appendonly yes") {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
}
