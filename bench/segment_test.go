package bench

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSegmentRequestsAreBatchesOfEventsOfTheSizeAskedFor(t *testing.T) {
	t.Parallel()
	l := load(1, time.Second, 1)
	l.Entries, l.Partitions, l.Segment, l.PayloadBytes = 100, 1000, true, 400
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(newRequestBuilder(l, "test:80").append(nil, 7)))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body) // as long as the head says, or it fails
	if err != nil {
		t.Fatal(err)
	}
	if user, _, _ := req.BasicAuth(); req.URL.Path != "/segment/v1/batch" || user != "default" {
		t.Fatalf("got %s of %q", req.URL.Path, user)
	}
	var batch struct {
		SentAt time.Time
		Batch  []json.RawMessage
	}
	if err := json.Unmarshal(body, &batch); err != nil || len(batch.Batch) != 100 || time.Since(batch.SentAt) > time.Minute {
		t.Fatalf("%d events sent at %v: %v", len(batch.Batch), batch.SentAt, err)
	}
	for i, raw := range batch.Batch {
		var event struct {
			MessageID  string `json:"messageId"`
			Properties struct{ Game string }
		}
		if err := json.Unmarshal(raw, &event); err != nil || len(raw) != 400 || !strings.HasPrefix(event.Properties.Game, "bench-") {
			t.Errorf("event %d of %d bytes: %+v %v", i, len(raw), event, err)
		}
	}
	l.PayloadBytes = 100
	if _, err := l.validate(); err == nil {
		t.Error("events of 100 bytes are no Segment events")
	}
}
