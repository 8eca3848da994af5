package bench

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func TestTheAccountIsReadFromTheAdminPort(t *testing.T) {
	t.Parallel()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"ledger":{"accepted":7,"delivered":4,"buffered":3}}`
		switch {
		case r.URL.Path == "/api/v1/namespaces/old":
		case r.URL.Path != "/api/v1/namespaces/default":
			http.Error(w, `{"error":"no_such_namespace"}`, http.StatusNotFound)
			return
		case r.URL.RawQuery == "audit=1":
			body = strings.TrimSuffix(body, "}") + `,"residual":2}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(admin.Close)
	a, err := ReadAccount(t.Context(), admin.URL, "default", false)
	if want := (partition.Ledger{Accepted: 7, Delivered: 4, Buffered: 3}); err != nil || a.Ledger != want || a.Residual != nil {
		t.Errorf("got %+v, %v; want %+v", a, err, want)
	}
	if a, err = ReadAccount(t.Context(), admin.URL, "default", true); err != nil || a.Residual == nil || *a.Residual != 2 {
		t.Errorf("audit: got %+v, %v; want a residual of 2", a, err)
	}
	if _, err = ReadAccount(t.Context(), admin.URL, "old", true); err == nil {
		t.Error("an audit without a residual: got no error")
	}
	if _, err = ReadAccount(t.Context(), admin.URL, "other", false); err == nil || !strings.Contains(err.Error(), "no_such_namespace") {
		t.Errorf("got %v, want what the server said", err)
	}
}

func TestAwaitingTheDrainEndsWithTheBufferOrTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		left := int64(3)
		at, err := AwaitDrained(t.Context(), func(context.Context) (partition.Ledger, error) {
			left--
			return partition.Ledger{Buffered: left}, nil
		})
		if err != nil || at.Sub(start) != 10*time.Millisecond {
			t.Errorf("got %v, %v; want the third look", at.Sub(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = AwaitDrained(ctx, func(context.Context) (partition.Ledger, error) { return partition.Ledger{Buffered: 9}, nil })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "9 entries left") {
			t.Errorf("got %v, want the end of the context and what is left", err)
		}
		broken := errors.New("broken")
		if _, err = AwaitDrained(t.Context(), func(context.Context) (partition.Ledger, error) { return partition.Ledger{}, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v, want the reader's error", err)
		}
	})
}

func TestOneSeriesIsReadFromTheMetrics(t *testing.T) {
	t.Parallel()
	text := []byte("# TYPE x_sum counter\nx_sum{namespace=\"other\"} 3\nx_sum{namespace=\"default\"} 1.28e+06\n")
	if got := Metric(text, `x_sum{namespace="default"}`); got != 1.28e6 {
		t.Errorf("got %v, want 1.28e6", got)
	}
	if got := Metric(text, "y_sum"); got != 0 {
		t.Errorf("absent: got %v, want 0", got)
	}
}
