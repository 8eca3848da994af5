package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The server with queues, and its namespaces.
const queuesSettings = "log_format: json\nlmstfy: true\npools: {default: {volatile: true}}"

var queuesSpaces = map[string]string{
	"mail":  fmt.Sprintf(`kind: queue, tokens: [%q]`, hashOf(mineCanary)),
	"other": fmt.Sprintf(`kind: queue, tokens: [%q]`, hashOf(theirsCanary)),
	"full":  `kind: queue, max_jobs: 3, max_queues: 1`,
	"open":  `kind: queue`,
	"slots": `kind: queue, queues: [{match: q, concurrency: 1}]`,
}

const (
	queue      = "/v1/open/q"
	claimed    = "200"
	noJob      = "404 no_such_job"
	noJobRoute = "404 no_such_route"
	badQueue   = "400 bad_queue"
	foreignID  = "01M81PY1FYMQ00M9QNMZ6NT86Y" // of another process and queue
)

// ofPage are headers of a page that posts text without asking first.
const ofPage = "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n"

func ask(method, path string) string { return request(method+" "+path, "", "") }

func settles(lines ...string) string {
	return post(queue+"/settle", "", strings.Join(lines, "\n"))
}

// settled is an answer with n results.
func settled(n int) string {
	text := "200"
	for i := range n {
		text += fmt.Sprintf(" %d:/", i)
	}
	return text
}

// sameLine is one settlement n times.
func sameLine(n int) string {
	return strings.Repeat(`{"id":"`+foreignID+`","attempt":1,"do":"ack"}`+"\n", n)
}

var nativeJobs = []row{
	{"a job", post(queue, "", "x"), ok, kept},
	{"a slash at the end", post(queue+"/", "", "x"), noJobRoute, kept},
	{"two slashes", post("/v1/open//q", "", "x"), badRequest, kept},
	{"an escaped queue", post("/v1/open/%71", "", "x"), badRequest, kept},
	{"no queue", post("/v1/open/", "", "x"), noJobRoute, kept},
	{"no queue, no slash", post("/v1/open", "", "x"), noJobRoute, kept},
	{"a queue that begins with a dot", post("/v1/open/.q", "", "x"), badQueue, kept},
	{"a queue that begins with _", post("/v1/open/_q", "", "x"), badQueue, kept},
	{"a queue of 255", post("/v1/open/"+x(255), "", "x"), ok, kept},
	{"a queue of 256", post("/v1/open/"+x(256), "", "x"), badQueue, kept},
	{"a queue with braces", post("/v1/open/{q}", "", "x"), badQueue, kept},
	{"a queue with a colon", post("/v1/open/a:b", "", "x"), badQueue, kept},
	{"two queues of a publish", post("/v1/open/a,b", "", "x"), badQueue, kept},
	{"an override", post("/v1/open/q", "X-HTTP-Method-Override: DELETE\r\n", "x"), ok, kept},
	{"PUT", request("PUT "+queue, "Content-Length: 1\r\n", "x"), "405 method_not_allowed Allow=POST,GET,HEAD,DELETE,OPTIONS", kept},
	{"a route below a job", ask("GET", queue+"/jobs/a/b"), noJobRoute, kept},

	{"delay below 0", post(queue+"?delay=-1s", "", "x"), "400 bad_delay", kept},
	{"delay of 1e999s", post(queue+"?delay=1e999s", "", "x"), "400 bad_delay", kept},
	{"delay of 2^32 s", post(queue+"?delay=4294967296s&ttl=0s", "", "x"), ok, kept},
	{"delay of more", post(queue+"?delay=4294967297s", "", "x"), "400 bad_delay", kept},
	{"delay of 2^63 ns", post(queue+"?delay=9223372036854775808ns", "", "x"), "400 bad_delay", kept},
	{"delay without a unit", post(queue+"?delay=5", "", "x"), "400 bad_delay", kept},
	{"delay of NaN", post(queue+"?delay=NaNs", "", "x"), "400 bad_delay", kept},
	{"an empty delay", post(queue+"?delay=", "", "x"), "400 bad_delay", kept},
	{"ttl below delay", post(queue+"?delay=2s&ttl=1s", "", "x"), "400 bad_ttl", kept},
	{"ttl below 0", post(queue+"?ttl=-1ns", "", "x"), "400 bad_ttl", kept},
	{"no tries", post(queue+"?tries=0", "", "x"), "400 bad_tries", kept},
	{"tries of 2^16", post(queue+"?tries=65536", "", "x"), "400 bad_tries", kept},
	{"tries of 2^32+1", post(queue+"?tries=4294967297", "", "x"), "400 bad_tries", kept},
	{"tries of 2^64+1", post(queue+"?tries=18446744073709551617", "", "x"), "400 bad_tries", kept},
	{"tries with a sign", post(queue+"?tries=%2B1", "", "x"), "400 bad_tries", kept},
	{"tries in hexadecimal", post(queue+"?tries=0x1", "", "x"), "400 bad_tries", kept},
	{"ttl twice", post(queue+"?ttl=1h&ttl=2h", "", "x"), "400 bad_parameter", kept},
	{"ttl twice, once escaped", post(queue+"?ttl=1h&%74tl=2h", "", "x"), "400 bad_parameter", kept},
	{"a parameter of another route", post(queue+"?count=1", "", "x"), "400 bad_parameter", kept},
	{"an id with a slash", post(queue+"?id=a/b", "", "x"), "400 bad_id", kept},
	{"an id of 65", post(queue+"?id="+x(65), "", "x"), "400 bad_id", kept},
	{"an id for two", post(queue+"?id=a", asJSON, "[1,2]"), "400 bad_id", kept},
	{"an attribute without a name", post(queue+"?attribute.=x", "", "x"), "400 bad_parameter", kept},
	{"an attribute with a name of 129", post(queue+"?attribute."+x(129)+"=x", "", "x"), "400 bad_parameter", kept},
	{"an attribute twice", post(queue+"?attribute.a=x&attribute.a=y", "", "x"), "400 bad_parameter", kept},
	{"an attribute of ours", post(queue+"?attribute.schedule=x", "", "x"), "400 bad_parameter", kept},
	{"an attribute that is no UTF-8", post(queue+"?attribute.a=%C3%28", "", "x"), "400 bad_parameter", kept},
	{"17 attributes", post(queue+"?"+numberedAttributes(17), "", "x"), "400 bad_parameter", kept},
	{"16 attributes", post(queue+"?"+numberedAttributes(16), "", "x"), ok, kept},
	{"a job that its attribute makes too large", post(queue+"?attribute.a=b", "", x(32<<10)), "413 entry_too_large", kept},
	{"1,001 shards", post(queue+"?shards=1001", "", "x"), "400 bad_shards", kept},
	{"1,000 shards of 32 KiB", post(queue+"?shards=1000", "", x(32<<10)), "413 body_too_large", kept},
	{"1,000 shards of lines of 32 KiB", post(queue+"?shards=1000", asNDJSON, strings.Repeat(x(32<<10)+"\n", 20)), "400 bad_shards", kept},
	{"a unique key of 1 KiB", post(queue+"?unique=1m&unique_key="+strings.Repeat("k", 1024), "", "x"), "400 bad_unique_key", kept},
	{"a unique key with control characters", post(queue+"?unique=1m&unique_key=a%00b", "", "x"), "400 bad_unique_key", kept},
	{"unique for 10 years", post(queue+"?unique=87600h&unique_key=a", "", "x"), "400 bad_unique", kept},
	{"a conflict without unique", post(queue+"?on_conflict=replace", "", "x"), "400 bad_on_conflict", kept},
	{"dedup without a key", post(queue+"?dedup=1m", "", "x"), "400 bad_dedup", kept},
	{"dedup of 25 h", post(queue+"?dedup=25h", "Idempotency-Key: j\r\n", "x"), "400 bad_dedup", kept},
	{"two keys", post(queue, "Idempotency-Key: j\r\nIdempotency-Key: k\r\n", "x"), badHeader, kept},

	{"an entry of 32 KiB", post("/v1/open/large", "", x(32<<10)), ok, kept},
	{"an entry of a byte more", post("/v1/open/large", "", x(32<<10+1)), "413 entry_too_large", kept},
	{"1,001 entries", post(queue, asJSON, "["+strings.Repeat("1,", 1000)+"1]"), "413 too_many_entries", kept},
	{"one too large of two", post(queue, asNDJSON, "1\n"+x(32<<10+1)), "413 entry_too_large", kept},
	{"no entry", post(queue, asJSON, "[]"), "400 empty_batch", kept},
	{"broken JSON", post(queue, asJSON, "[1,"), "400 bad_json", kept},
	{"two of two jobs", post("/v1/full/q", asJSON, "[1,2]"), "200 accepted=2", kept},
	{"more jobs than there is room for", post("/v1/full/q", asJSON, "[3,4]"), "429 too_many_jobs scope=namespace Retry-After", kept},
	{"a further queue", post("/v1/full/p", "", "x"), "429 too_many_queues scope=namespace Retry-After", kept},

	{"count of 0", post(queue+"/claim?count=0", "", ""), "400 bad_count", kept},
	{"count of 1,001", post(queue+"/claim?count=1001", "", ""), "400 bad_count", kept},
	{"count of 2^32+1", post(queue+"/claim?count=4294967297", "", ""), "400 bad_count", kept},
	{"ttr of 0", post(queue+"/claim?ttr=0s", "", ""), "400 bad_ttr", kept},
	{"ttr of 2^32 s", post(queue+"/claim?ttr=4294967296s", "", ""), "400 bad_ttr", kept},
	{"wait below 0", post(queue+"/claim?wait=-1ms", "", ""), "400 bad_wait", kept},
	{"wait of 601 s", post(queue+"/claim?wait=601s", "", ""), "400 bad_wait", kept},
	{"a claim of 64 queues", post("/v1/open/"+numberedQueues(64)+"/claim", "", ""), claimed, kept},
	{"a claim of 65 queues", post("/v1/open/"+numberedQueues(65)+"/claim", "", ""), badQueue, kept},
	{"a claim of an empty name", post("/v1/open/a,/claim", "", ""), badQueue, kept},
	{"a claim by weights", post("/v1/open/a*1000,b/claim", "", ""), claimed, kept},
	{"a claim by a weight of 0", post("/v1/open/a*0/claim", "", ""), badQueue, kept},
	{"a claim by a weight of 2^32+1", post("/v1/open/a*4294967297/claim", "", ""), badQueue, kept},
	{"a claim by two weights", post("/v1/open/a*1*2/claim", "", ""), badQueue, kept},
	{"a publish to a weight", post("/v1/open/a*2", "", "x"), badQueue, kept},
	{"jobs of a queue with one slot", post("/v1/slots/q", asJSON, "[1,2]"), "200 accepted=2", kept},
	{"a claim of both", post("/v1/slots/q/claim?count=2", "", ""), claimed, kept},
	{"a claim without a slot", post("/v1/slots/q/claim?count=1000&wait=10ms", "", ""), claimed, kept},
	{"a claim with a body", post("/v1/open/none/claim", "", smuggled), claimed, kept},
	{"a request behind a claim that waits", post("/v1/open/none/claim?wait=100ms", "", "") + post("/v1/open/behind", "", "x"), claimed + " | " + ok, kept},

	{"an id of nobody", ask("GET", queue+"/jobs/"+foreignID), noJob, kept},
	{"an id in small letters", ask("GET", queue+"/jobs/"+strings.ToLower(foreignID)), noJob, kept},
	{"an id with I, L, O and U", ask("GET", queue+"/jobs/OIM81PYLFYMQ00M9QNMZ6NTU6Y"), noJob, kept},
	{"half an id", ask("GET", queue+"/jobs/"+foreignID[:13]), noJob, kept},
	{"an id of 129 bits", ask("GET", queue+"/jobs/8ZZZZZZZZZZZZZZZZZZZZZZZZZ"), noJob, kept},
	{"an id and a dash", ask("DELETE", queue+"/jobs/"+foreignID+"-"), noJob, kept},
	{"an id of 4 KiB", ask("DELETE", queue+"/jobs/"+x(4<<10)), noJob, kept},

	{"a settle of 1,000 lines of one id", settles(sameLine(1000)), settled(1000), kept},
	{"of 1,001", settles(sameLine(1001)), "413 too_many_entries", kept},
	{"a settle of nothing", settles(), "400 empty_body", kept},
	{"of empty lines", settles("", "", ""), "400 empty_batch", kept},
	{"of no JSON", settles("x", "null", "[]", `{"id":1}`, `{"id":"x","do":"ack"} {}`, `{"do":"ack","x":1}`, "\xff"), settled(7), kept},
	{"of 64-bit numbers", settles(`{"id":"x","do":"nack","ms":9223372036854775808}`, `{"id":"x","do":"ack","attempt":-1}`,
		`{"id":"x","do":"touch","ms":1e999}`), settled(3), kept},

	{"steps of 1 ns", ask("GET", queue+"/forecast?step=1ns"), "400 bad_step", kept},
	{"1,001 steps", ask("GET", queue+"/forecast?steps=1001"), "400 bad_steps", kept},
	{"a list of dead letters", ask("GET", queue+"/dead?limit=100"), "200", kept},
	{"of 101", ask("GET", queue+"/dead?limit=101"), "400 bad_limit", kept},
	{"from 2^63 on", ask("GET", queue+"/dead?offset=9223372036854775808"), "400 bad_offset", kept},
	{"from -1 on", ask("GET", queue+"/dead?offset=-1"), "400 bad_offset", kept},
	{"of another's queue", request("GET /v1/mail/q/dead", bears(theirsCanary), ""), another, kept},
	{"PUT of dead letters", request("PUT "+queue+"/dead", "Content-Length: 1\r\n", "x"), "405 method_not_allowed Allow=POST,GET,HEAD,OPTIONS", kept},
	{"dead letters, limit of 2^63", post(queue+"/dead?do=delete&limit=9223372036854775808", "", ""), "400 bad_limit", kept},
	{"dead letters, nothing to do", post(queue+"/dead", "", ""), "400 bad_do", kept},
	{"a purge of nothing said", ask("DELETE", queue), "400 bad_state", kept},

	{"a claim by a page", post(queue+"/claim?ttr=1ms", ofPage, ""), crossed, kept},
	{"a delete of dead letters by a page", post(queue+"/dead?do=delete&limit=10000", ofPage, ""), crossed, kept},
	{"a purge under a name that was re-pointed", hosted("DELETE "+queue+"?state=all", "evil.example"), badHost, kept},
	{"a peek under such a name", hosted("GET "+queue+"/peek", "evil.example"), badHost, kept},
	{"no token", post("/v1/mail/q", "", "x"), nobody, kept},
	{"a claim without a token", post("/v1/mail/q/claim?wait=10m", "", ""), nobody, kept},
	{"another's token", post("/v1/mail/q", bears(theirsCanary), "x"), another, kept},
	{"another's token on a settle", post("/v1/mail/q/settle", bears(theirsCanary), sameLine(1)), another, kept},
	{"another's token on no namespace", post("/v1/nobody/q", bears(theirsCanary), "x"), another, kept},
	{"the right token", post("/v1/mail/q", bears(mineCanary), "x"), ok, kept},
}

func numberedAttributes(n int) string {
	pairs := make([]string, n)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("attribute.n%d=x", i)
	}
	return strings.Join(pairs, "&")
}

func numberedQueues(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return strings.Join(names, ",")
}

const (
	apiNotFound   = "404 api not found"
	badQueueName  = "400 queue name contains forbidden characters"
	lmstfyQueue   = "/api/open/l"
	published     = "201 published"
	noneAvailable = "404 no job available"
	lmstfyPage    = "403 this namespace needs no token, so requests of web pages are rejected: list the page's origin under cors_origins, or " +
		"give the namespace tokens"
	noList = "400 request body should be an array of objects"
)

func put(path, headers, body string) string {
	return request("PUT "+path, fmt.Sprintf("%sContent-Length: %d\r\n", headers, len(body)), body)
}

var lmstfyJobs = []row{
	{"a job", put(lmstfyQueue, "", "x"), published, kept},
	{"an empty job", put(lmstfyQueue, "", ""), published, kept},
	{"a slash at the end", put(lmstfyQueue+"/", "", "x"), apiNotFound, kept},
	{"POST", post(lmstfyQueue, "", "x"), apiNotFound, kept},
	{"HEAD", ask("HEAD", lmstfyQueue), "404", kept},
	{"a queue of 256", put("/api/open/"+x(256), "", "x"), "400 namespace or queue name too long", kept},
	{"a queue that begins with _", put("/api/open/_q", "", "x"), badQueueName, kept},
	{"a queue with a dot", put("/api/open/a.b", "", "x"), badQueueName, kept},
	{"a queue above", put("/api/open/..", "", "x"), badQueueName, kept},
	{"a queue above, escaped", put("/api/open/%2e%2e%2fq", "", "x"), badQueueName, kept},
	{"a queue with half an escape", put("/api/open/q%2", "", "x"), badQueueName, kept},
	{"a namespace with a brace", put("/api/{a}/q", "", "x"), "400 namespace name contains forbidden characters", kept},

	{"delay of 2^32", put(lmstfyQueue+"?delay=4294967296&ttl=0", "", "x"), "400 invalid delay", kept},
	{"delay of 2^32 - 1", put(lmstfyQueue+"?delay=4294967295&ttl=0", "", "x"), published, kept},
	{"delay below 0", put(lmstfyQueue+"?delay=-1", "", "x"), "400 invalid delay", kept},
	{"delay above ttl", put(lmstfyQueue+"?delay=86401", "", "x"), "400 ttl is shorter than delay", kept},
	{"ttl of 2^64+1", put(lmstfyQueue+"?ttl=18446744073709551617", "", "x"), "400 invalid ttl", kept},
	{"an empty ttl", put(lmstfyQueue+"?ttl=", "", "x"), "400 invalid ttl", kept},
	{"no tries", put(lmstfyQueue+"?tries=0", "", "x"), "400 tries shouldn't be zero", kept},
	{"tries of 2^16", put(lmstfyQueue+"?tries=65536", "", "x"), "400 invalid tries", kept},
	{"a limit of 0", put(lmstfyQueue+"/deadletter?limit=0", "", ""), "400 invalid limit", kept},
	{"a limit of 2^64", put(lmstfyQueue+"/deadletter?limit=18446744073709551616", "", ""), "400 invalid limit", kept},
	{"a limit of 2^40", put(lmstfyQueue+"/deadletter?limit=1099511627776", "", ""), "200 respawned", kept},

	{"a job of 1 MiB", put("/api/open/big", "", x(1<<20)), published, kept},
	{"a job of a byte more", put("/api/open/big", "", x(1<<20+1)), "413 body too large", closed},
	{"a list of 64", put(lmstfyQueue+"/bulk", "", "["+strings.Repeat("1,", 63)+"1]"), "201 published=64", kept},
	{"a list of 65", put(lmstfyQueue+"/bulk", "", "["+strings.Repeat("1,", 64)+"1]"), "400 too many jobs", kept},
	{"a list of 16 MiB", put("/api/open/big/bulk", "", "["+strings.Repeat(" ", 16<<20-3)+"1]"), "201 published=1", kept},
	{"a list of a byte more", put("/api/open/big/bulk", "", "["+strings.Repeat(" ", 16<<20-2)+"1]"), "413 body too large", closed},
	{"a list with a job too large", put("/api/open/big/bulk", "", `[1,"`+x(1<<20)+`"]`), "413 job too large", kept},
	{"a list of nothing", put(lmstfyQueue+"/bulk", "", "[]"), "400 no jobs", kept},
	{"no list", put(lmstfyQueue+"/bulk", "", "{}"), noList, kept},
	{"half a list", put(lmstfyQueue+"/bulk", "", "[1,"), noList, kept},
	{"a list of a million depths", put(lmstfyQueue+"/bulk", "", strings.Repeat("[", 1<<20)), noList, kept},
	{"17 attributes", put(lmstfyQueue, "Enable-Job-Version: yes\r\n"+attributes(17), "x"), "400 too many attributes, cannot exceed 16", kept},

	{"count of 101", ask("GET", lmstfyQueue+"?count=101"), "400 invalid count", kept},
	{"count of 0", ask("GET", lmstfyQueue+"?count=0"), "400 invalid count", kept},
	{"timeout of 2^32", ask("GET", lmstfyQueue+"?timeout=4294967296"), "400 invalid timeout", kept},
	{"ttr of 2^32", ask("GET", lmstfyQueue+"?ttr=4294967296"), "400 invalid ttr", kept},
	{"a claim of 256 queues", ask("GET", "/api/open/"+numberedQueues(256)), noneAvailable, kept},
	{"a claim of 257 queues", ask("GET", "/api/open/"+numberedQueues(257)), "400 invalid queue name(s)", kept},
	{"a claim of commas", ask("GET", "/api/open/,,,"), "400 invalid queue name(s)", kept},
	{"a request behind a claim that waits", ask("GET", "/api/open/none?timeout=1") + put(lmstfyQueue, "", "x"), noneAvailable + " | " + published, kept},

	{"a job in the place of one that is not there", put(lmstfyQueue+"/job/"+foreignID, "", "x"), published, kept},
	{"a job by an id that no queue has", ask("GET", lmstfyQueue+"/job/"+strings.ToLower(foreignID)), "404 job not found", kept},

	{"100 sizes without a token", strings.Repeat(ask("GET", "/api/mail/q/size"), 100), strings.TrimSuffix(strings.Repeat("200 | ", 100), " | "), kept},
	{"a claim by a page, as an image", request("GET "+lmstfyQueue, "Sec-Fetch-Site: cross-site\r\n", ""), lmstfyPage, kept},
	{"a size asked by a page", request("GET "+lmstfyQueue+"/size", ofPage, ""), lmstfyPage, kept},
	{"no token", put("/api/mail/q", "", "x"), "401 token not found", kept},
	{"another's token", put("/api/mail/q", "X-Token: "+theirsCanary+"\r\n", "x"), "401 invalid token", kept},
	{"another's token and the right one", put("/api/mail/q", "X-Token: "+theirsCanary+"\r\nX-Token: "+mineCanary+"\r\n", "x"), "401 token not found", kept},
	{"a pool that is none", put("/api/mail/q", "X-Token: nobody:"+mineCanary+"\r\n", "x"), "404 pool not found", kept},
	{"the right token", put("/api/mail/q", "X-Token: "+mineCanary+"\r\n", "x"), published, kept},
	{"the right token, as Bearer", put("/api/mail/q", bears(mineCanary), "x"), "401 token not found", kept},
}

func attributes(n int) (headers string) {
	for i := range n {
		headers += fmt.Sprintf("Job-Attr-%d: v\r\n", i)
	}
	return headers
}

// renderLmstfy says what an answer of lmstfy's API means, and how many jobs it acknowledges.
func renderLmstfy(body []byte) (text string, acknowledged int64) {
	var b struct {
		Error, Msg string
		ID         string   `json:"job_id"`
		IDs        []string `json:"job_ids"`
	}
	if len(body) > 0 && json.Unmarshal(body, &b) != nil {
		return fmt.Sprintf("malformed body %q", body), 0
	}
	switch {
	case b.Msg == "published" && b.IDs != nil:
		return fmt.Sprintf("published=%d", len(b.IDs)), int64(len(b.IDs))
	case b.Msg == "published":
		return b.Msg, 1
	}
	return b.Error + b.Msg, 0
}
