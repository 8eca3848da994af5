package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/spillway-io/spillway/partition"
)

// Account is what a server's admin port says of a namespace.
type Account struct {
	Ledger   partition.Ledger `json:"ledger"`
	Residual *int64           `json:"residual"` // only after an audit: buffered minus the entries counted

	Reclaimed   int64 `json:"reclaimed"`            // evicted while a sink had them, then delivered after all
	DeadLetters int64 `json:"dead_letters"`         // kept
	DeadEvicted int64 `json:"dead_letters_evicted"` // dropped by the bound of their list
}

// ReadAccount asks the admin port at admin ("http://host:port", or with
// "any:TOKEN@" before the host where it asks for a token). An audit counts
// the entries of every partition; it means something only while nothing moves.
func ReadAccount(ctx context.Context, admin, namespace string, audit bool) (Account, error) {
	url := admin + "/api/v1/namespaces/" + namespace
	if audit {
		url += "?audit=1"
	}
	body, err := Get(ctx, url)
	if err != nil {
		return Account{}, err
	}
	var a Account
	if err := json.Unmarshal(body, &a); err != nil {
		return Account{}, fmt.Errorf("read ledger: %w", err)
	}
	if audit && a.Residual == nil {
		return Account{}, fmt.Errorf("read ledger: the answer has no residual")
	}
	return a, nil
}

// Get returns the body of a 200. Everything else is an error.
func Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	_ = resp.Body.Close() // read-only
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", req.URL.Redacted(), resp.Status, body)
	}
	return body, err
}

// Metric is the value of one series, such as x_total{namespace="default"}, in
// Prometheus's text. It is 0 when the series is absent.
func Metric(text []byte, series string) float64 {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte(series+" ")); found {
			value, _ := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
			return value
		}
	}
	return 0
}
