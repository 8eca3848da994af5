package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// Options of both: how jobs are published, and where they lie.
var jobOptions = []option{
	{"publish", []string{"one by one", "own ids", "keys, each twice", "lines", "shards", "lmstfy"}},
	{"layout", []string{"1 shard", "3 shards", "spread over 3"}},
	{"queue", []string{"work", "work_eu-1", "7B00000000000000000000000A"}},
	{"tries", []string{"3", "20"}},
	{"ttl", []string{"none", "1h"}},
	{"delay", []string{"none", "200ms"}},
	{"dead", []string{"keep", "drop"}},
	{"tokens", []string{"none", "rates"}},
	{"pool", []string{"default", "other"}},
}

var claimOptions = append([]option{
	{"claim by", []string{"native", "lmstfy"}},
	{"count", []string{"1", "7", "1000"}},
	{"wait", []string{"0s", "1s"}},
	{"rate", []string{"none", "100/s"}},
	{"named", []string{"alone", "among empty ones"}},
	{"settle", []string{"ack", "nack", "nack for later", "requeue", "touch", "bury", "lapse", "delete"}},
}, jobOptions...)

var pushOptions = append([]option{
	{"sink", []string{"webhook", "404 at first", "401 at first", "503 at first", "cut at first", "retry", "drop", "file", "webhook and file"}},
	{"rate", []string{"none", "5/s"}},
	{"writes", []string{"1", "8"}},
	{"batch", []string{"1", "10"}},
}, jobOptions...)

const (
	jobsOfARow = 25
	// empty queues of a row begin with this.
	emptyQueue = "none-"
)

func (s *space) queueSettings() string {
	text := "kind: queue, dead: " + s.choices["dead"]
	switch s.choices["layout"] {
	case "3 shards":
		text += ", shards: 3"
	case "spread over 3":
		text += fmt.Sprintf(", shards: 3, spread: {%q: 3}", s.choices["queue"])
	}
	if s.choices["rate"] != "none" {
		text += fmt.Sprintf(", queues: [{match: %q, rate: %s}]", s.choices["queue"], s.choices["rate"])
	}
	if s.token != "" {
		text += fmt.Sprintf(", tokens: [{hash: %q, name: t, produce: 100000/s, consume: 100000/s}]", tokenHash(s.token))
	}
	return text
}

func (s *space) claimSettings() string { return s.queueSettings() }

func (s *space) pushSettings() string {
	rule := fmt.Sprintf("match: %q, sink: %s, backoff: 1ms..10ms, writes: %s, batch: %s", s.choices["queue"], s.name, s.choices["writes"], s.choices["batch"])
	return s.queueSettings() + ", push: [{" + rule + "}]"
}

// sink is the URL of a row that has one.
func (s *space) sink() string {
	hook, file := s.run.receiver.url(s.name, s.choices["sink"]), "file://"+s.run.dir+"/"+s.name
	switch s.choices["sink"] {
	case "file":
		return file
	case "webhook and file":
		return hook + " " + file
	}
	return hook
}

// jobs is how many jobs there are in the end.
func (s *space) jobs() int64 {
	if s.choices["publish"] == "shards" {
		return 3 * jobsOfARow
	}
	return jobsOfARow
}

func (s *space) publishJobs() {
	route, query := "/v1/"+s.name+"/"+s.choices["queue"]+"?", "tries="+s.choices["tries"]
	lmstfy := "/api/" + s.name + "/" + s.choices["queue"]
	if strings.HasPrefix(s.choices["publish"], "lmstfy") { // whole seconds
		query += map[string]string{"1h": "&ttl=3600"}[s.choices["ttl"]] + map[string]string{"200ms": "&delay=1"}[s.choices["delay"]]
	} else {
		query += map[string]string{"1h": "&ttl=1h"}[s.choices["ttl"]] + map[string]string{"200ms": "&delay=200ms"}[s.choices["delay"]]
	}
	payloads := make([]string, jobsOfARow)
	for n := range payloads {
		payloads[n] = fmt.Sprintf(`{"n":%d}`, n)
	}
	const one, lines = "application/json", "application/x-ndjson"
	twice := func(target, contentType, body string, headers ...string) {
		first := s.send(200, "POST", target, contentType, body, headers...)
		again := s.send(200, "POST", target, contentType, body, headers...)
		if a, b := gjson.Get(first, "ids").Raw, gjson.Get(again, "ids").Raw; a != b || a == "" {
			s.errorf("published again: got %s, want %s", b, a)
		}
	}
	switch s.choices["publish"] {
	case "lines":
		s.send(200, "POST", route+query, lines, strings.Join(payloads, "\n"))
	default:
		for n, payload := range payloads {
			switch s.choices["publish"] {
			case "own ids":
				target := fmt.Sprintf("%s%s&id=order-%d", route, query, n)
				if s.kind == "claim" { // nobody works yet, so the job still exists
					twice(target, one, payload)
				} else {
					s.send(200, "POST", target, one, payload)
				}
			case "keys, each twice":
				twice(route+query, one, payload, "Idempotency-Key", fmt.Sprint("key-", n))
			case "shards":
				s.send(200, "POST", route+query+"&shards=3", one, payload)
			case "lmstfy":
				s.send(201, "PUT", lmstfy+"?"+query, one, payload)
			default:
				s.send(200, "POST", route+query, one, payload)
			}
		}
	}
}

// work is two workers that claim and settle until all jobs have ended.
func (s *space) work() {
	var mu sync.Mutex
	seen := map[string]bool{}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for !s.ended() && !s.failed.Load() && time.Now().Before(s.run.until) {
				for id, data := range s.claim() {
					mu.Lock()
					again := seen[id]
					seen[id] = true
					mu.Unlock()
					if !strings.HasPrefix(data, `{"n":`) {
						s.errorf("claimed %q", data)
					}
					s.settle(id, again)
				}
				if s.choices["settle"] == "bury" {
					s.send(200, "POST", "/v1/"+s.name+"/"+s.choices["queue"]+"/dead?do=respawn", "", "")
				}
			}
		})
	}
	workers.Wait()
}

// claim returns jobs by their ids.
func (s *space) claim() map[string]string {
	queues := s.choices["queue"]
	if s.choices["named"] != "alone" {
		queues = emptyQueue + "1," + queues + "," + emptyQueue + "2"
	}
	got := map[string]string{}
	add := func(id, job gjson.Result) {
		data, err := base64.StdEncoding.DecodeString(job.Get("data").String())
		if err != nil {
			s.errorf("%s: %v", job, err)
		}
		got[id.String()] = string(data)
	}
	if s.choices["claim by"] == "native" {
		ttr := map[bool]string{true: "500ms", false: "1m"}[s.choices["settle"] == "lapse"]
		answer := s.send(200, "POST", fmt.Sprintf("/v1/%s/%s/claim?ttr=%s&count=%s&wait=%s", s.name, queues, ttr, s.choices["count"], s.choices["wait"]), "", "")
		for _, job := range gjson.Get(answer, "jobs").Array() {
			add(job.Get("id"), job)
		}
		return got
	}
	count, _ := strconv.Atoi(s.choices["count"])
	ttr := map[bool]int{true: 1, false: 60}[s.choices["settle"] == "lapse"]
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", fmt.Sprintf("http://%s/api/%s/%s?ttr=%d&count=%d&timeout=%s",
		s.run.data, s.name, queues, ttr, min(count, 100), strings.TrimSuffix(s.choices["wait"], "s")), nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-Token", s.token)
	switch status, text := s.run.do(s.t, req); status {
	case 200:
		jobs := gjson.Parse(text)
		if !jobs.IsArray() { // count=1 is a job alone
			add(jobs.Get("job_id"), jobs)
		}
		for _, job := range jobs.Array() {
			if jobs.IsArray() {
				add(job.Get("job_id"), job)
			}
		}
	case 404:
	default:
		s.errorf("lmstfy's claim: %d %s", status, text)
	}
	return got
}

// settle does what the row says at the first claim of a job, and acks it at another.
func (s *space) settle(id string, again bool) {
	queue := "/v1/" + s.name + "/" + s.choices["queue"]
	do := func(verdict, want string) {
		answer := s.send(200, "POST", queue+"/settle", "", fmt.Sprintf(`{"id":%q,%s}`, id, verdict))
		if got := gjson.Get(answer, "results.0.state").String(); !strings.Contains(want, got) || got == "" {
			s.errorf("%s of %s: got %s, want %s", verdict, id, answer, want)
		}
	}
	choice := s.choices["settle"]
	if again {
		choice = "ack"
	}
	switch choice {
	case "nack":
		do(`"do":"nack"`, "ready")
	case "nack for later":
		do(`"do":"nack","ms":20`, "delayed")
	case "requeue":
		do(`"do":"requeue"`, "ready")
	case "bury":
		do(`"do":"bury"`, "dead expired")
	case "touch":
		do(`"do":"touch","ms":60000`, "leased")
		do(`"do":"ack"`, "acked")
	case "lapse":
	case "delete":
		s.send(200, "DELETE", queue+"/jobs/"+id, "", "")
	default:
		if s.choices["claim by"] == "lmstfy" {
			s.send(204, "DELETE", "/api/"+s.name+"/"+s.choices["queue"]+"/job/"+id, "", "")
			return
		}
		do(`"do":"ack"`, "acked gone") // gone: its lease lapsed, and the other worker was quicker
	}
}

// jobLedger is the ledger of a namespace of queues.
type jobLedger struct {
	Published, Acked, Expired, Deleted, Lost, Dead, Ready, Delayed, Leased int64
}

// account reads the ledger of the row's namespace into ledger, and returns the residual of an audit.
func (s *space) account(ledger any, audit string) (residual int64, found bool) {
	req, err := http.NewRequest("GET", "http://"+s.run.admin+"/api/v1/namespaces/"+s.name+audit, nil)
	if err != nil {
		panic(err)
	}
	status, text := s.run.do(s.t, req)
	if status != 200 {
		return 0, false
	}
	if err := json.Unmarshal([]byte(gjson.Get(text, "ledger").Raw), ledger); err != nil {
		s.t.Errorf("%s: ledger %s: %v", s.name, text, err)
	}
	return gjson.Get(text, "residual").Int(), true
}

// dead is how many jobs the row's sink drops.
func (s *space) dead() int64 {
	if s.kind != "push" || s.choices["sink"] != "drop" {
		return 0
	}
	return s.jobs() / jobsOfARow * (jobsOfARow / dropEvery)
}

func (s *space) ended() bool {
	if s.kind == "buffer" {
		var l ledger
		_, found := s.account(&l, "")
		return found && l.Buffered == 0
	}
	var l jobLedger
	_, found := s.account(&l, "")
	return found && l.Published >= s.jobs() && l.Ready+l.Delayed+l.Leased == 0 && (l.Dead == 0 || s.choices["settle"] != "bury")
}

// check holds the ledger against what the row did.
func (s *space) check() {
	if s.kind == "buffer" {
		s.checkBuffer()
		return
	}
	var l jobLedger
	residual, found := s.account(&l, "?audit=1")
	want := jobLedger{Published: s.jobs(), Acked: s.jobs() - s.dead(), Dead: s.dead()}
	if s.choices["dead"] == "drop" {
		want.Dead, want.Expired = 0, want.Dead
		if s.choices["settle"] == "bury" {
			want.Acked, want.Expired = 0, s.jobs()
		}
	}
	if !found || residual != 0 || l != want {
		s.errorf("got residual %d, %+v, want %+v", residual, l, want)
	}
	if s.kind == "push" {
		s.run.receiver.checkJobs(s)
	}
}
