package rig

import (
	"maps"
	"testing"
)

func TestMetricsAreReadWithoutBucketsAndNumbersAreNumbers(t *testing.T) {
	t.Parallel()
	const text = "# HELP a_total Entries of 1\n# TYPE a_total counter\na_total{namespace=\"a b\"} 1.5e+06\nb_bucket{le=\"1\"} 7\nb_count 7\n"
	want := map[string]float64{`a_total{namespace="a b"}`: 1.5e6, "b_count": 7}
	if got, err := Metrics([]byte(text)); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, broken := range []string{"a_total much\n", "a_total\n"} {
		if got, err := Metrics([]byte(broken)); err == nil {
			t.Errorf("%q: got %v", broken, got)
		}
	}
}
