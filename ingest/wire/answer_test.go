package wire

import (
	"encoding/json"
	"testing"
)

func TestAnswerIsTheDocumentedJSON(t *testing.T) {
	t.Parallel()
	a := Answer{Accepted: 126, Evicted: 3, Rejected: 2, Depth: 4096, Capacity: 4096, Results: []Result{
		{5, Drop, ReasonTooLarge}, {77, Drop, ReasonStale},
	}}
	want := `{"accepted":126,"evicted":3,"rejected":2,"depth":4096,"capacity":4096,` +
		`"results":[{"i":5,"result":"drop","reason":"too_large"},{"i":77,"result":"drop","reason":"stale"}]}`
	if got := string(a.Append(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a = Answer{Accepted: 1, Depth: Absent, Capacity: Absent}
	if got, want := string(a.Append(nil)), `{"accepted":1,"evicted":0,"rejected":0,"results":[]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFailureEscapesItsText(t *testing.T) {
	t.Parallel()
	f := Failure{Code: CodeNotReady, Message: "dial \"x\"\r\n\x1b[31m\xff</script>", Scope: "namespace", Unknown: true}
	text := f.Append([]byte("before"))[len("before"):]
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if got["error"] != "not_ready" || got["message"] != "dial \"x\"\r\n\x1b[31m\ufffd</script>" || got["scope"] != "namespace" || got["outcome"] != "unknown" {
		t.Errorf("got %v", got)
	}
	for _, c := range text {
		if c < ' ' {
			t.Errorf("%q holds a control character", text)
		}
	}
	if got, want := string((&Failure{Code: CodeInternal, Message: "m"}).Append(nil)), `{"error":"internal","message":"m"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatsIsTheDocumentedJSON(t *testing.T) {
	t.Parallel()
	s := Stats{Namespace: "kart", Partition: "p", Depth: 3, Capacity: 10, Leased: true, OldestAgeMillis: 1500, Accepted: 9, Evicted: 2, Expired: 4}
	want := `{"namespace":"kart","partition":"p","depth":3,"capacity":10,"leased":true,"oldest_age_ms":1500,"since_birth":{"accepted":9,"evicted":2,"expired":4}}`
	if got := string(s.Append(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
