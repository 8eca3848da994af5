package operate

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/drops"
)

// ioPipe is an input on which nobody types.
func ioPipe(t *testing.T) (io.Reader, io.Writer) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	return r, w
}

func TestEntriesAndLettersArePrintedAsTables(t *testing.T) {
	t.Parallel()
	const letters = `{"total":3,"bytes":2048,"next":"next","letters":[
		{"letter":"0123456789abcdef","shard":0,"partition":"eu-1","seq":7,"id":"e\u202e7","dead_at_ms":1700000000000,"reason":"rejected","detail":"400: no \u001b[31mlap","attempt":1,"bytes":9}]}`
	const causes = `{"total":20000,"letters":[],"looked":20000,"complete":false,"causes":[{"cause":"#: no lap # \u001b[2J","count":19000,"first_ms":1700000000000,"last_ms":1700000005000,"example":"422: no lap 7","id":"0123456789abcdef"},
			{"cause":"","count":1000,"first_ms":1700000001000,"last_ms":1700000002000,"example":"x","id":"0123456789abcdee"}]}`
	const letterOf = `{"letter":"0123456789abcdef","partition":"eu-1","seq":7,"dead_at_ms":1700000000000,"reason":"rejected","detail":"400","attempt":1,"bytes":9,"data":{"lap": 3}}`
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/namespaces/kart/partitions/eu-1/peek": `{"depth":3,"entries":[
			{"seq":1,"age_ms":1500,"bytes":9,"data":{"lap": 3, "name":"\u001b[2J` + "\u202e" + `"}},{"seq":2,"id":"e2","age_ms":900,"bytes":5,"text":"a\u0007b"},{"seq":3,"age_ms":1,"bytes":40000,"base64":"AAEC","cut":true}]}`,
		"GET /api/v1/namespaces/kart/dead": letters, "GET /api/v1/namespaces/chess/dead": causes, "GET /api/v1/namespaces/kart/dead/0123456789abcdef": letterOf,
		"GET /api/v1/drops": `{"drops":[{"at_ms":1700000000000,"namespace":"kart","partition":"eu-1","id":"e7","reason":"evicted","age_ms":61000,"entries":1},
			{"at_ms":1700000000000,"namespace":"kart","partition":"eu-1","reason":"novel","entries":12,"detail":"x"}],"reasons":{"evicted":{"total":550,"sampled":128},"novel":{"total":12,"sampled":1}}}`,
		"GET /api/v1/audit": `{"acts":[{"at_ms":1700000000000,"name":"alice","role":"admin","action":"purge","namespace":"kart","partition":"eu-1","detail":"older_than_ms=60000","result":"ok","entries":7},
			{"at_ms":1700000000000,"name":"bob","role":"admin","action":"reload","detail":"","result":"bad\u001b[2J"}]}`,
	})
	for name, args := range map[string][]string{
		"peek": {"peek", "kart", "eu-1", "--from=newest", "--limit=3"}, "dead-ls": {"dead", "ls", "kart", "--reason=rejected"}, "dead-by-cause": {"dead", "ls", "chess", "--by=cause"},
		"dead-show": {"dead", "show", "kart", "0123456789abcdef"}, "drops": {"drops", "--limit=5"}, "audit": {"audit"},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, code := run(t, api, args...)
			if code != 0 {
				t.Fatalf("exit %d, %s", code, stderr)
			}
			golden(t, name, out+stderr)
			out, stderr, code = run(t, api, append(args, "-o", "json")...)
			if code != 0 || stderr != "" || strings.Count(out, "\n") != 1 || strings.ContainsAny(out, "\x1b\u202e\a") {
				t.Errorf("json: exit %d, %q%s", code, out, stderr)
			}
		})
	}
	if want := "/peek?from=newest&limit=3"; !strings.Contains(api.requests(), want) {
		t.Errorf("got %s, want %s", api.requests(), want)
	}
}

func TestEveryReasonIsExplained(t *testing.T) {
	t.Parallel()
	for _, reason := range drops.Reasons() {
		if reasonTexts[string(reason)] == "" {
			t.Errorf("%s has no text", reason)
		}
	}
	if got, want := len(reasonTexts), len(drops.Reasons()); got != want {
		t.Errorf("%d texts of %d reasons", got, want)
	}
}

func TestAnUnknownIDIsExplained(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/drops":      `{"drops":[],"reasons":{}}`,
		"GET /api/v1/deliveries": `{"deliveries":[{"at_ms":1700000000000,"namespace":"kart","partition":"eu-1","id":"e7","reason":"delivered","entries":1}],"total":9,"sampled":1}`,
	})
	if out, stderr, code := run(t, api, "deliveries", "kart", "--id=e7"); code != 0 || !strings.Contains(out, "2023-11-14T22:13:20Z  kart       eu-1       e7  delivered") ||
		!strings.Contains(stderr, "since the process started, 9 entries were delivered") || !strings.Contains(api.requests(), "deliveries?id=e7&limit=100&namespace=kart") {
		t.Errorf("deliveries: exit %d, %s", code, out)
	}
	out, stderr, code := run(t, api, "drops", "--id=e7\x1b")
	if code != 0 || out != "" || !strings.HasPrefix(stderr, "No sampled drop matches.") || !strings.Contains(api.requests(), "id=e7%1B") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestATailPrintsLinesUntilTheServiceEndsIt(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{"GET /api/v1/namespaces/kart/tail": `{"namespace":"kart","partition":"eu-1","seq":7,"id":"e7","occurred_at_ms":1700000000123,"age_ms":3,"bytes":9,"data":{"lap": "\u001b[2J"}}

{"namespace":"kart","partition":"eu-1","seq":8,"occurred_at_ms":1700000000125,"age_ms":1,"bytes":1,"text":"` + "\u202e" + `"}
{"ended":"after 10 minutes"}
`})
	out, stderr, code := run(t, api, "tail", "kart", "--per-second=5")
	want := "22:13:20.123  eu-1  e7  {\"lap\":\"\\u001b[2J\"}\n22:13:20.125  eu-1  -  \\u202e\n"
	if code != 0 || out != want || !strings.Contains(stderr, "(after 10 minutes); start it again") {
		t.Errorf("exit %d, got\n%swant\n%s%s", code, out, want, stderr)
	}
	if !strings.Contains(api.requests(), "tail?per_second=5") {
		t.Errorf("got %s", api.requests())
	}
	api.answers["GET /api/v1/namespaces/kart/tail"] = "{\"seq\":1}\n"
	if _, stderr, code = run(t, api, "tail", "kart"); code != 1 || !strings.Contains(stderr, "the connection ended") {
		t.Errorf("cut: exit %d, %s", code, stderr)
	}
	api.answers["GET /api/v1/namespaces/kart/tail"] = `{"error":"forbidden","message":"this needs the role operator"}`
	if _, stderr, code = run(t, api, "tail", "kart"); code != 1 || !strings.Contains(stderr, "needs the role operator") {
		t.Errorf("viewer: exit %d, %s", code, stderr)
	}
}

func TestAnInterruptEndsATail(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	c := Tail{command: command{Connection: Connection{Admin: server.URL, Timeout: time.Minute}}, Namespace: "kart", PerSecond: 10}
	if err := c.Run(ctx, Streams{Out: io.Discard, Err: io.Discard}); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestErrorsOfTheConnectionSayWhatToChange(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sw_right\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := quiet(t)
	api.token = "sw_right"
	open := newFakeAPI(t, map[string]string{"GET /api/v1/audit": `{"acts":[]}`, "GET /api/v1/drops": `<html>`})
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = discardLog
	t.Cleanup(secure.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	withUser := strings.Replace(api.URL, "http://", "http://any:sw_right@", 1)
	wrongUser := strings.Replace(api.URL, "http://", "http://any:sw_wrong@", 1)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"ls --namespaces --api-token=sw_right --admin=" + api.URL, 0, ""},
		{"ls --namespaces --api-token-file=" + token + " --admin=" + api.URL, 0, ""},
		{"ls --namespaces --admin=" + withUser, 0, ""},
		{"audit --admin=" + open.URL + "/", 0, ""},
		{"audit --admin=" + api.URL, 1, "requires a token: set --api-token-file, or SPILLWAY_API_TOKEN"},
		{"audit --admin=" + wrongUser, 1, "does not know this token"},
		{"audit --api-token=sha256:abc --admin=" + api.URL, 2, "this is the hash"},
		{"audit --api-token-file=/nowhere --admin=" + api.URL, 2, "api_token_file: open /nowhere"},
		{"audit --admin=" + closed, 1, "nothing listens at " + closed},
		{"audit --admin=" + other.URL, 1, "is --admin that port"},
		{"drops --admin=" + open.URL, 1, "is --admin that port"},
		{"ls --admin=" + open.URL, 1, "has no such route"},
		{"audit --timeout=50ms --admin=" + silent.URL, 1, "does not answer within 50ms"},
		{"audit --admin=" + strings.Replace(open.URL, "http:", "https:", 1), 1, "write http:// in --admin"},
		{"audit --admin=" + strings.Replace(secure.URL, "https:", "http:", 1), 1, "write https:// in --admin"},
		{"audit --admin=" + secure.URL, 1, "name the authority's certificate with --admin-ca"},
		{"audit --admin-ca=" + token + " --admin=" + secure.URL, 2, "has no certificate in PEM form"},
		{"audit --admin=localhost:8081", 2, "admin: not a URL"},
		{"audit --timeout=1ms", 2, "timeout"},
	} {
		out, stderr, code := run(t, nil, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d, %s%s; want %d, %s", tt.args, code, out, stderr, tt.code, tt.want)
		}
		if strings.Contains(stderr, "sw_") {
			t.Errorf("%s: the token is shown: %s", tt.args, stderr)
		}
	}
}

func TestACertificateOfTheOwnAuthorityIsAccepted(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"acts":[]}`) }))
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(secure.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := run(t, nil, "audit", "--admin="+secure.URL, "--admin-ca="+ca); code != 0 {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestAListWithoutPausedPartitionsSaysWhereToLook(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/namespaces":                 `{"namespaces":["kart"]}`,
		"GET /api/v1/namespaces/kart/partitions": `{"total":0,"complete":true,"partitions":[]}`,
		"GET /api/v1/drops":                      `{"drops":[],"reasons":{}}`,
		"GET /api/v1/pauses":                     `{"pauses":[{"namespace":"kart"},{"namespace":"chess","partition":"blitz"}]}`,
	})
	for args, want := range map[string]string{"ls kart --paused": "spillway audit", "ls kart": "no partition has", "ls kart --filter=eu": "no such partition", "drops --id e7": "with --partition instead of --id"} {
		if out, stderr, code := run(t, api, strings.Fields(args)...); code != 0 || !strings.Contains(out+stderr, want) {
			t.Errorf("%s: exit %d, %s%s", args, code, out, stderr)
		}
	}
}

func TestAListShowsPausedPartitionsWithoutEntries(t *testing.T) {
	t.Parallel()
	api := losing(t)
	api.answers["GET /api/v1/namespaces/kart/partitions"] = `{"total":2,"partitions":[{"partition":"eu-2","depth":3,"paused":true},{"partition":"eu-9","depth":0,"paused":true,"oldest_age_ms":0}],"now_ms":1,"sweep":{"completed_at_ms":1}}`
	api.answers["GET /api/v1/pauses"] = `{"pauses":[]}`
	out, stderr, code := run(t, api, "ls", "kart", "--paused", "--filter=eu")
	if code != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "  paused\neu-9") || !strings.HasSuffix(out, "  paused, no entries\n") || !strings.Contains(api.requests(), "paused=1") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
	out, _, _ = run(t, api, "ls", "kart", "--paused", "--filter=eu", "-o", "json")
	if !strings.Contains(out, `{"namespace":"kart","partition":"eu-9","depth":0,"paused":true,`) || !strings.Contains(out, `"total":2`) {
		t.Errorf("got %s", out)
	}
	if _, stderr, _ = run(t, api, "ls", "kart", "--paused", "--limit=1"); !strings.Contains(stderr, "1 more") {
		t.Errorf("got %s", stderr)
	}
}
