package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	sdk "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/redistest"
)

// phpShop is serve over the Redis of a PHP application, with three tokens: reader, who has no more
// than the default; writer, who may publish one class; and root, who may publish anything.
type phpShop struct {
	*reloading
	t     *testing.T
	redis *redis.Client
}

func servePHP(t *testing.T, flavor, more string) *phpShop {
	t.Helper()
	db := redistest.Start(t)
	hash := func(token string) string { return fmt.Sprintf(`"sha256:%x"`, sha256.Sum256([]byte(token))) }
	s := serveFile(t, `pools: {shop: "`+db.URL()+`"}
namespaces:
  shop:
    kind: php
    pool: shop
    flavor: `+flavor+`
    key_prefix: app_
    queues: [default, "mail*", {match: bulk, tries: 9, ttr: 1h}]
    tokens:
      - {hash: `+hash("reader")+`, name: reader}
      - {hash: `+hash("writer")+`, name: writer, rights: [produce], classes: ['App\Jobs\*']}
      - {hash: `+hash("root")+`, name: root, rights: [produce, consume], raw: true}
`+more)
	s.ready(200)
	opt, err := redis.ParseURL(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return &phpShop{s, t, c}
}

func (s *phpShop) do(token, method, path, body string, want int, text string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.data+"/v1/shop/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want || !strings.Contains(string(got), text) {
		s.t.Errorf("%s %s %.80s by %s: got %d %s, want %d with %s", method, path, body, token, answer.StatusCode, got, want, text)
	}
	return string(got)
}

const plainJob = `{"job":"App\\Jobs\\Plain@fire","data":{"n":1}}`

// The routes of queues work over the keys of Laravel; what differs says so.
func TestQueuesOfPHPAnswerTheRoutesOfQueues(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "laravel", "")
	s.do("root", "POST", "default", plainJob, 200, `{"accepted":1,"ids":[]}`)
	s.do("root", "POST", "default?delay=1h", plainJob, 200, `"accepted":1`)
	s.do("root", "POST", "default", `[`+plainJob+`,`+plainJob+`]`, 200, `"accepted":2`)
	s.do("root", "GET", "default", "", 200, `"ready":3,"delayed":1,"leased":0,"pending":1,"dead":0,"reserved":0`)
	s.do("root", "GET", "default/peek", "", 200, `"job":"App\\Jobs\\Plain@fire"`)
	var claimed struct {
		Jobs []struct {
			ID      string
			Attempt int
		}
	}
	text := s.do("reader", "POST", "default/claim?count=3&ttr=10s", "", 200, `"php":{"id":"`)
	if err := json.Unmarshal([]byte(text), &claimed); err != nil || len(claimed.Jobs) != 3 {
		t.Fatalf("%s: %v", text, err)
	}
	settle := func(i int, do, want string) {
		s.do("reader", "POST", "default/settle", fmt.Sprintf(`{"id":"%s","attempt":1,%s}`, claimed.Jobs[i].ID, do), 200, want)
	}
	s.do("reader", "GET", "default/jobs/"+claimed.Jobs[0].ID, "", 200, `"state":"leased"`)
	settle(0, `"do":"ack"`, `"state":"acked"`)
	settle(0, `"do":"ack"`, `"state":"gone"`)
	settle(1, `"do":"release","ms":5000`, `"state":"delayed"`)
	settle(2, `"do":"nack"`, `"state":"dead"`) // laravel's default is one try
	settle(2, `"do":"defer","ms":5000`, `"error":"bad_item"`)
	s.do("reader", "GET", "default/dead", "", 200, `"reason":"nacked"`)
	s.do("reader", "GET", "default/forecast?step=1h&steps=2", "", 200, `"due":[2]`)
	s.do("root", "POST", "default/dead?do=respawn", "", 200, `"respawned":1`)
	s.do("reader", "DELETE", "default?state=all", "", 200, `"deleted":3`)
	for _, absent := range []struct{ method, path, body, code string }{
		{"PUT", "default/schedules/s", `{"every":"1h"}`, "no_such_route"},
		{"POST", "default/jobs/" + claimed.Jobs[0].ID + "/commit", "", "no_such_route"},
		{"PATCH", "default/jobs/" + claimed.Jobs[0].ID, `{"delay_ms":1}`, "no_such_route"},
		{"POST", "secret/claim", "", "no_such_queue"},
	} {
		s.do("root", absent.method, absent.path, absent.body, 404, absent.code)
	}
	for _, param := range []string{"ttl=1h", "shards=2", "prepare=1", "on_end=x", "tries=2"} {
		s.do("root", "POST", "default?"+param, plainJob, 400, "bad_parameter")
	}
	s.do("root", "POST", "default", `{"data":1}`, 400, "bad_job")
	s.redis.Set(t.Context(), "app_queues:mail", "x", 0)
	s.do("root", "POST", "mail", plainJob, 409, "foreign_type")
}

// A claim that says no ttr has that of its queues' rules, of several the longest.
func TestAQueueOfPHPHasALeaseOfItsOwn(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "think3", "")
	// In this order, since the last to run out of a queue's leases is looked at.
	for _, row := range []struct {
		queues string
		want   time.Duration
	}{{"default", time.Minute}, {"bulk", time.Hour}, {"default,bulk", time.Hour}, {"bulk,mail", time.Hour}} {
		queues, want := row.queues, row.want
		queue, _, _ := strings.Cut(queues, ",")
		s.do("root", "POST", queue, plainJob, 200, `"accepted":1`)
		s.do("reader", "POST", queues+"/claim", "", 200, `"php"`)
		lease := s.redis.ZRangeWithScores(t.Context(), "sw:php:app_{queues:"+queue+"}:leases", -1, -1).Val()
		left := time.Until(time.UnixMilli(int64(lease[0].Score)))
		if left > want || left < want-50*time.Second {
			t.Errorf("%s: the lease has %v left, want %v", queues, left, want)
		}
	}
}

// To publish runs code, so it is a right of its own, by every route that writes payloads.
func TestWhoMayNotPublishReachesNoKeyOfPHP(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "think3", "")
	const raw = `{"job":"App\\Jobs\\X@call","data":{"command":"","command":"O:8:\"stdClass\":0:{}"},"attempts":0}`
	s.do("reader", "POST", "default", plainJob, 403, "rights: [produce]")
	s.do("reader", "POST", "default/dead?do=respawn", "", 403, "rights: [produce]")
	s.do("writer", "POST", "default", raw, 403, "raw: true")
	s.do("writer", "POST", "default", `{"job":"Evil@run"}`, 403, "may not run the class")
	s.do("writer", "POST", "default", `{"job":"App\\Jobs\\Plain@fire","job":"Evil@run"}`, 403, "may not run the class")
	s.do("writer", "POST", "default/claim", "", 403, "consume")
	s.do("nobody", "POST", "default", plainJob, 401, "unauthorized")
	if n := s.redis.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
	s.do("writer", "POST", "default", plainJob, 200, `"accepted":1`)
	s.do("root", "POST", "default", raw, 200, `"accepted":1`)
	if n := s.redis.LLen(t.Context(), "app_{queues:default}").Val(); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// Jobs that PHP pushed reach a webhook. Those that PHP's own code has to run do not, unless the rule
// takes them.
func TestJobsOfPHPArePushedToAWebhook(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Add(int64(strings.Count(string(body), "App")))
	}))
	defer receiver.Close()
	s := servePHP(t, "laravel", `    push:
      - {match: "mail*", sink: crm}
      - {match: bulk, sink: crm, accept: all}
sinks: {crm: "`+receiver.URL+`/in"}
`)
	const chain = `{"job":"App@call","data":{"command":"O:1:\"A\":1:{s:7:\"chained\";a:1:{i:0;i:1;}}"},"maxTries":null,"attempts":0}`
	for _, queue := range []string{"mail-1", "bulk"} {
		for _, payload := range []string{`{"job":"App@fire","maxTries":3,"attempts":0}`, chain} {
			s.redis.RPush(t.Context(), "app_queues:"+queue, payload)
		}
	}
	eventually(t, "three jobs are written and one is dead", func() bool {
		return got.Load() == 3 && s.redis.ZCard(t.Context(), "sw:php:app_queues:mail-1:dead").Val() == 1
	})
	eventually(t, "nothing is left", func() bool {
		return s.redis.ZCard(t.Context(), "app_queues:mail-1:reserved").Val()+s.redis.ZCard(t.Context(), "app_queues:bulk:reserved").Val() == 0
	})
	if n := s.redis.Exists(t.Context(), "sw:{control}:doc").Val(); n != 0 {
		t.Error("the Redis of the application holds the control document")
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// Jobs move out of PHP's queue and back, each once, also where an earlier run died between its
// publish and its ack. The bytes of a payload stay.
func TestJobsMoveBetweenPHPAndAQueue(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "laravel", "  orders: {kind: queue}\n")
	payload := func(i int) string {
		return fmt.Sprintf(`{"uuid":"u%d","job":"App\\Jobs\\Plain@fire","data":{"n":12345678901234567%d,"e":[]},"maxTries":3,"attempts":0}`, i, i)
	}
	const n = 250
	for i := range n {
		s.redis.RPush(t.Context(), "app_queues:default", payload(i))
	}
	move := func(want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"jobs", "move"}, args...)...)
		cmd.Env = append(os.Environ(), "SPILLWAY_SERVER=http://"+s.data, "SPILLWAY_TOKEN=root")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("move %v: %s, %v; want %s", args, out, err, want)
		}
	}
	move("250 jobs are ready and would be moved", "shop", "default", "--to=orders/default", "--dry-run")
	// A run that died after its publish.
	orders, err := sdk.NewQueues("http://"+s.data, sdk.QueuesConfig{Namespace: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Publish(t.Context(), "default", []byte(payload(7)), sdk.PublishOptions{Key: "php:u7", Dedup: 24 * time.Hour, Tries: 3}); err != nil {
		t.Fatal(err)
	}
	s.redis.LRem(t.Context(), "app_queues:default", 1, payload(7))
	s.redis.RPush(t.Context(), "app_queues:default", strings.Replace(payload(7), `"attempts":0`, `"attempts":1`, 1)) // its lease lapsed
	move("moved 249 jobs; 1 were moved before", "shop", "default", "--to=orders/default")
	if c, err := orders.Counts(t.Context(), "default"); err != nil || c.Ready != n {
		t.Errorf("%+v, %v", c, err)
	}
	move("moved 250 jobs; 0 were moved before", "orders", "default", "--to=shop/mail-back", "--rate=2000/s")
	got := s.redis.LRange(t.Context(), "app_queues:mail-back", 0, -1).Val()
	var want []string
	for i := range n {
		want = append(want, payload(i))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d payloads came back, of %d; the first is %.200s", len(got), n, got[:1])
	}
}

// The Go client publishes jobs that PHP runs, reads what payloads say, and gives jobs back.
func TestTheGoClientWorksOnQueuesOfPHP(t *testing.T) {
	t.Parallel()
	s := servePHP(t, "think3", "")
	j, err := sdk.NewQueues("http://"+s.data, sdk.QueuesConfig{Namespace: "shop", Token: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	welcome := sdk.PHPJob{Job: `app\job\Welcome@fire`, Data: map[string]string{"to": "ada"}, Tries: 3, Timeout: 30}
	for _, repeated := range []bool{false, true} {
		if p, err := j.PublishPHP(t.Context(), "default", []sdk.PHPJob{welcome, welcome}, sdk.PublishOptions{Key: "k"}); err != nil || p.Repeated != repeated {
			t.Errorf("%+v, %v", p, err)
		}
	}
	jobs, err := j.Claim(t.Context(), []string{"mail", "default"}, sdk.ClaimOptions{Count: 2})
	if err != nil || len(jobs) != 2 || jobs[0].PHP == nil || jobs[0].PHP.Job != welcome.Job || jobs[0].PHP.TimeoutMS != 30_000 || jobs[0].Tries != 3 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	if err := j.Release(t.Context(), jobs[0], time.Hour); err != nil {
		t.Error(err)
	}
	if err := j.Ack(t.Context(), jobs[1]); err != nil {
		t.Error(err)
	}
	if err := j.Ack(t.Context(), jobs[0]); !errors.Is(err, sdk.ErrGone) {
		t.Errorf("got %v", err)
	}
	if c, err := j.Counts(t.Context(), "default"); err != nil || c.Delayed != 1 || c.Pending != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := j.PublishPHP(t.Context(), "default", []sdk.PHPJob{{Data: 1}}, sdk.PublishOptions{}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
