//go:build ui

package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// object is one of JSON.
type object = map[string]any

// fake answers the admin API with made-up data: states that are hard to provoke in a real
// server, such as hostile texts that its checks keep out.
type fake struct {
	URL string

	mu         sync.Mutex
	role       string
	namespaces []object
	partition  func(i int) object // the row of a partition; its default is calm
	partitions int
	dead       []object
	drops      []object
	peek       []object
	pauses     []object
	queues     []object // namespaces of kind queue
	findings   []object // the worst first
	rows       []object // their queues
	jobs       []object
	schedules  []object
	services   []object
	paused     object         // how the queue is; nil: it is not
	trace      []object       // nil: none is kept
	workers    []object       // of queues
	causes     []object       // of dead letters, beside those of dead
	down       bool           // nothing is answered
	reject     object         // what writes are answered; nil: they work
	writes     []object       // bodies of writes, with "path"
	asked      map[string]int // by route
}

func newFake(t *testing.T) *fake {
	f := &fake{role: "admin", partitions: 40, asked: map[string]int{}, partition: calmPartition, namespaces: []object{calm("game")}, queues: []object{}, causes: []object{}, findings: []object{}}
	page := Handler()
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /console/", page)
	mux.HandleFunc("/api/v1/", f.api)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// calm is a namespace that keeps up.
func calm(name string) object {
	return object{
		"namespace": name, "buffered": 1234, "partitions": 40, "oldest_age_ms": 2300, "max_age_ms": 180_000, "capacity": 10_000,
		"ledger":     object{"accepted": 9_876_543, "delivered": 9_875_309, "evicted": 0, "expired": 0, "dead": 0, "lost": 0, "buffered": 1234},
		"overdue_ms": 0, "dead_letters": 0, "dead_letters_bytes": 0, "reclaimed": 0, "purged": 0, "residual": nil,
		"rates":  object{"accepted": 1204.5, "delivered": 1201.2, "evicted": 0, "expired": 0, "dead": 0, "lost": 0, "purged": 0, "rejected": 0},
		"paused": nil, "paused_partitions": 0,
		"sinks": []object{{"label": "https://" + name + ".example/v1", "type": "https", "state": "open", "failing_since_ms": nil, "p50_ms": 8.2, "p99_ms": 41.0,
			"writes_per_s": 18.4, "retries": 0, "last_error": "", "last_error_at_ms": nil, "in_flight": 3, "concurrency": 16, "coalescer_fill": 0.42}},
	}
}

// failing is a namespace whose sink fails, so that it evicts.
func failing(name string, now int64) object {
	n := calm(name)
	n["buffered"], n["oldest_age_ms"], n["dead_letters"] = 399_120, 171_000, 12
	n["ledger"] = object{"accepted": 5_402_118, "delivered": 4_991_410, "evicted": 11_534, "expired": 42, "dead": 12, "lost": 0, "buffered": 399_120}
	n["rates"] = object{"accepted": 840.0, "delivered": 12.5, "evicted": 118.2, "expired": 3.4, "dead": 0, "lost": 0, "purged": 0, "rejected": 7.0}
	n["sinks"].([]object)[0]["state"] = "failing"
	n["sinks"].([]object)[0]["failing_since_ms"] = now - 195_000
	n["sinks"].([]object)[0]["last_error"] = "503 Service Unavailable: upstream connect error"
	n["sinks"].([]object)[0]["last_error_at_ms"] = now - 1800
	n["sinks"].([]object)[0]["retries"] = 412
	return n
}

func calmPartition(i int) object {
	depth := 30 + i*7%200
	return object{"partition": fmt.Sprintf("kart-%d", i), "depth": depth, "capacity": 10_000, "fill": float64(depth) / 10_000, "leased": i%9 == 0, "paused": false,
		"oldest_age_ms": 2300 - 20*(i%100), "in_per_s": 30.1, "out_per_s": 30.0, "evicted_per_s": 0, "expired_per_s": 0, "accepted": 1000, "evicted": 0, "expired": 0,
		"attempt": 0, "due_at_ms": 0, "last_error": "", "swept_at_ms": 0}
}

func (f *fake) api(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	route := strings.TrimPrefix(r.URL.EscapedPath(), "/api/v1/") // a name may have a slash
	parts := strings.Split(route, "/")
	f.asked[route]++
	if f.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(object{"error": "store_unavailable", "message": "the store does not answer"})
		return
	}
	if r.Method == http.MethodPost {
		f.write(w, r, route)
		return
	}
	now := time.Now().UnixMilli()
	store := object{"mode": "sentinel", "url": "redis://10.0.0.7:26379", "ready": true, "error": "", "warnings": []string{}, "rtt_ms": 0.41, "redis_version": "7.2.4"}
	var answer object
	switch {
	case route == "info":
		answer = object{"version": "1.4.0", "revision": "9b487ba", "go_version": "go1.26", "role": "all", "started_at_ms": now - 90_000_000, "now_ms": now, "store": store,
			"you": object{"name": "alice", "role": f.role}, "mask_fields": []string{"password", "email"}}
	case route == "overview":
		answer = object{"now_ms": now, "store": store, "role": "all", "namespaces": f.namespaces, "queues": f.queues, "workers": object{"size": 16, "busy": 5}, "findings": f.found(), "near": object{"max_age": 0.6, "full": 0.9},
			"batch_fill": object{"le": []int{1, 2, 4, 8, 16, 32, 64, 128}, "counts": []int{20, 31, 80, 122, 160, 90, 300, 812}}}
	case route == "history" && slices.ContainsFunc(f.queues, func(q object) bool { return q["namespace"] == r.URL.Query().Get("namespace") }):
		answer = object{"step_ms": 60_000, "from_ms": now - 120_000, "points": 3, "series": object{"ready": []any{70, 71, nil}, "pending": []any{nil, 38, 38}, "dead": []any{nil, nil, nil},
			"oldest_ready_age_ms": []any{nil, 61_000, 62_000}, "published": []any{20, 21, 22}, "acked": []any{1, 2, 3}, "died": []any{0, 0, 0}, "expired": []any{0, 0, 0}, "lost": []any{0, 0, 0}}}
	case route == "history":
		answer = f.history(now)
	case route == "drops":
		answer = object{"drops": f.drops, "reasons": object{"evicted": object{"total": 81_233, "sampled": 128}, "expired": object{"total": 512, "sampled": 128}}}
	case r.URL.Query().Get("by") == "cause":
		looked := 0
		for _, c := range f.causes {
			looked += c["count"].(int)
		}
		answer = object{"causes": f.causes, "looked": looked, "complete": true}
	case route == "pauses":
		answer = object{"pauses": f.pauses}
	case route == "audit":
		answer = object{"acts": []object{{"at_ms": now - 60_000, "name": "bob", "role": "operator", "action": "pause", "namespace": "game", "partition": "kart-7", "detail": "new certificate", "result": "ok"}}}
	case len(parts) == 3 && parts[2] == "partitions":
		answer = f.page(r, now)
	case len(parts) == 3 && parts[2] == "dead":
		answer = object{"total": len(f.dead), "bytes": 1000, "letters": f.dead, "next": ""}
	case len(parts) == 3 && parts[2] == "queues" && r.URL.Query().Get("names") == "1":
		names := []any{}
		for _, row := range f.rows {
			if name := row["queue"].(string); strings.Contains(name, r.URL.Query().Get("search")) {
				names = append(names, name)
			}
		}
		answer = object{"total": len(names), "queues": []object{}, "names": names}
	case len(parts) == 4 && parts[2] == "queues":
		answer = maps.Clone(f.rows[0])
		answer["paused"] = f.paused
	case len(parts) == 5 && parts[4] == "jobs":
		answer = f.listed(r.URL.Query())
	case len(parts) == 3 && parts[2] == "queues":
		answer = object{"now_ms": now, "read_at_ms": now, "total": len(f.rows), "left_out": 0, "queues": f.rows}
	case len(parts) == 5 && parts[2] == "queues" && parts[4] == "dead":
		answer = object{"total": 12, "jobs": f.jobs}
	case len(parts) == 3 && parts[2] == "workers":
		answer = object{"workers": f.workers}
	case len(parts) == 5 && parts[2] == "queues" && parts[4] == "peek":
		answer = f.jobs[0]
	case parts[len(parts)-1] == "forecast":
		answer = forecast(now, r.URL.Query())
	case parts[len(parts)-1] == "trace" && f.trace == nil:
		w.WriteHeader(http.StatusNotFound)
		answer = object{"error": "no_such_trace", "message": "there is no trace of this job"}
	case parts[len(parts)-1] == "trace":
		answer = object{"events": f.trace}
	case len(parts) == 6 && parts[4] == "jobs":
		answer = f.jobs[0]
	case len(parts) == 3 && parts[2] == "schedules":
		answer = object{"schedules": f.schedules, "next": ""}
	case len(parts) == 3 && parts[2] == "owners":
		answer = object{"owners": f.services}
	case parts[len(parts)-1] == "times":
		answer = object{"next": []string{"2031-03-30T03:00:00+02:00", "2031-03-31T02:30:00+02:00"}}
	case len(parts) == 6 && parts[4] == "schedules":
		answer = f.schedules[0]
	case len(parts) == 5 && parts[4] == "peek":
		answer = object{"depth": 37, "entries": f.peek}
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = object{"error": "no_such_route", "message": "no such route"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// found is what the server judges.
func (f *fake) found() object {
	level, headline := any("ok"), "no data is being lost"
	if len(f.findings) > 0 {
		level = f.findings[0]["level"]
	}
	if level == "loss" {
		headline = "data is being lost or rejected"
	}
	return object{"level": level, "headline": headline, "findings": f.findings}
}

// losing is what the server finds of a namespace that evicts.
func losing(name string) []object {
	return []object{
		{"level": "loss", "namespace": name, "partition": "kart-7", "what": "11,534 entries were evicted within 2m5s, 118.2/s now; 94% in partition kart-7",
			"why": "partitions are full, and each keeps its newest; sink https://kart.example/v1 fails for 3m15s: 503 Service Unavailable: upstream connect error",
			"do":  "repair or widen the sink, or raise capacity", "command": "spillway ls " + name + " --sort evicted"},
		{"level": "risk", "namespace": name, "what": "7 entries were rejected, and their senders told", "why": "6 rate_limited, 1 too_large", "command": "spillway drops " + name},
	}
}

// listed is a page of 100 jobs that are like the first.
func (f *fake) listed(query url.Values) object {
	j := f.jobs[0]
	from, _ := strconv.Atoi(query.Get("after"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	page := []object{}
	for i := from; i < min(100, from+limit); i++ {
		page = append(page, object{"id": fmt.Sprint(j["job"], i), "state": query.Get("state"), "attempt": 3, "tries": 3, "bytes": 9, "published_ms": 1,
			"due_ms": time.Now().UnixMilli() + 60_000, "deadline_ms": time.Now().UnixMilli() + 60_000, "died_ms": j["at_ms"], "reason": j["reason"],
			"error": j["error"], "progress": 40, "note": j["note"], "result": j["result"], "acked_ms": j["at_ms"]})
	}
	answer := object{"jobs": page}
	if from+limit < 100 {
		answer["next"] = strconv.Itoa(from + limit)
	}
	return answer
}

func (f *fake) write(w http.ResponseWriter, r *http.Request, route string) {
	var body object
	_ = json.NewDecoder(r.Body).Decode(&body)
	body["path"] = route
	f.writes = append(f.writes, body)
	answer := object{"dry_run": body["dry_run"] == true, "entries": 1234, "partitions": 3, "leased": 1, "complete": true, "jobs": 12, "replayed": 12, "deleted": 12, "failed": 0, "paused": nil}
	if f.reject != nil && body["dry_run"] != true {
		w.WriteHeader(http.StatusConflict)
		answer = f.reject
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// page is one of the table of partitions.
func (f *fake) page(r *http.Request, now int64) object {
	number := func(key string) int { n, _ := strconv.Atoi(r.URL.Query().Get(key)); return n }
	rows := []object{}
	sum := map[string]float64{"depth": 0, "in_per_s": 0, "out_per_s": 0, "evicted_per_s": 0, "expired_per_s": 0}
	for i := range min(f.partitions, max(1000, number("offset")+number("limit"))) { // more would cost the fake more than the page
		row := f.partition(i)
		for field := range sum {
			sum[field] += asFloat(row[field])
		}
		if i >= number("offset") && len(rows) < number("limit") {
			rows = append(rows, row)
		}
	}
	return object{"now_ms": now, "sweep": object{"complete": true, "completed_at_ms": now - 300, "took_ms": 40, "known": f.partitions}, "total": f.partitions, "sum": sum, "partitions": rows}
}

func asFloat(v any) float64 {
	if n, ok := v.(int); ok {
		return float64(n)
	}
	return v.(float64)
}

// history is a day of 16 players who come and go; where the first namespace fails, since three
// hours.
func (f *fake) history(now int64) object {
	const step, points = 60_000, 1440
	series := map[string][]any{}
	add := func(name string, value float64) { series[name] = append(series[name], math.Round(max(0, value)*10)/10) }
	fails := f.namespaces[0]["rates"].(object)["evicted"] != 0
	random := rand.New(rand.NewPCG(1, 2))
	walk, backlog, oldest := 1.0, 0.0, 0.0
	for i := range points {
		walk += 0.02*random.NormFloat64() + 0.01*(1-walk)
		comes := 2045 * walk * (1 + 0.04*random.NormFloat64())
		goes, evicted, expired := comes*(1+0.03*random.NormFloat64()), 0.0, 0.0
		since := float64(i - (points - 195))
		oldest = 1800 + 400*random.ExpFloat64()
		if fails && since > 0 {
			goes, evicted = 1214*(1+0.03*random.NormFloat64()), max(0, min(118, since-70))*(1+0.05*random.NormFloat64())
			oldest = min(since*1000, 171_000)
			if since > 176 {
				expired = 3.4 + random.NormFloat64()
			}
			backlog += 2040
		}
		for name, value := range map[string]float64{
			"accepted": comes, "delivered": goes, "evicted": evicted, "expired": expired, "dead": 0, "lost": 0,
			"buffered": 2400 + 500*random.NormFloat64() + backlog, "oldest_age_ms": oldest,
		} {
			add(name, value)
		}
	}
	return object{"step_ms": step, "from_ms": now - int64(points-1)*step, "points": points, "series": series}
}

// inTrouble makes the sink of kart fail, and its busiest partitions full.
func (f *fake) inTrouble() {
	now := time.Now().UnixMilli()
	f.namespaces, f.findings = []object{failing("kart", now), calm("game")}, losing("kart")
	f.partition = func(i int) object {
		p := calmPartition(i)
		depth := max(10_000-max(0, i-11)*263, 120)
		p["depth"], p["fill"], p["out_per_s"], p["leased"] = depth, float64(depth)/10_000, 0, i == 4
		p["in_per_s"] = math.Round(2100/float64(i+4)) / 10
		p["evicted_per_s"] = max(0, math.Round(10*(26-3*float64(i)))/10)
		p["oldest_age_ms"], p["attempt"], p["last_error"], p["due_at_ms"] = 171_000-1370*i, 9, "503 Service Unavailable", now+9000
		p["paused"] = i == 5
		return p
	}
}
