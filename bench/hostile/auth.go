package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Tokens of the guarded server, secrets like the others.
const (
	mineCanary    = "canary-token-mine-31d8"
	theirsCanary  = "canary-token-theirs-8f02"
	limitedCanary = "canary-token-limited-c6b5"
	newCanary     = "canary-token-new-77e1"
	adminCanary   = "canary-token-admin-a90c"
	viewerCanary  = "canary-token-viewer-5d17"
	opsCanary     = "canary-token-operator-e2b8"
)

func hashOf(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

// guardedSettings are its settings beside its namespaces.
var guardedSettings = fmt.Sprintf("log_format: json\nmax_entries: 10\nlmstfy: true\nadmin_token: %q\nadmin_tokens: [{name: vi, role: "+
	"viewer, hash: %q}, {name: op, role: operator, hash: %q}]",
	hashOf(adminCanary), hashOf(viewerCanary), hashOf(opsCanary))

// guardedSpaces are its namespaces. A request holds ten entries there at most,
// so that a bucket of ten is the smallest there is.
var guardedSpaces = map[string]string{
	"mine":    fmt.Sprintf(`sink: "null:", tokens: [%q]`, hashOf(mineCanary)),
	"theirs":  fmt.Sprintf(`sink: "null:", tokens: [%q]`, hashOf(theirsCanary)),
	"limited": fmt.Sprintf(`sink: "null:", tokens: [{hash: %q, name: limited, rate: 1/h}]`, hashOf(limitedCanary)),
	"new":     fmt.Sprintf(`sink: "null:", linger: 3m, tokens: [{hash: %q, name: new, new_partitions: 2/h}]`, hashOf(newCanary)),
}

const (
	nobody  = "401 unauthorized"
	another = "403 forbidden"
	mine    = "/v1/mine/p"
)

func bears(token string) string { return "Authorization: Bearer " + token + "\r\n" }

var auth = []row{
	{"the right token", post(mine, bears(mineCanary), "x"), ok, kept},
	{"its scheme in small letters", post(mine, "authorization: bearer "+mineCanary+"\r\n", "x"), ok, kept},
	{"no token", aim(mine), nobody, kept},
	{"nobody's token", post(mine, bears("sw_nobody"), "x"), nobody, kept},
	{"an empty token", post(mine, "Authorization: Bearer \r\n", "x"), nobody, kept},
	{"the scheme alone", post(mine, "Authorization: Bearer\r\n", "x"), nobody, kept},
	{"no scheme", post(mine, "Authorization: "+mineCanary+"\r\n", "x"), nobody, kept},
	{"as Basic", post(mine, "Authorization: Basic "+mineCanary+"\r\n", "x"), nobody, kept},
	{"behind a tab", post(mine, "Authorization: Bearer\t"+mineCanary+"\r\n", "x"), nobody, kept},
	{"in the query", aim(mine + "?access_token=" + mineCanary), nobody, kept},
	{"in the query, as a beacon", aim(mine + "?k=" + mineCanary), nobody, kept},
	{"in a cookie", post(mine, "Cookie: token="+mineCanary+"\r\n", "x"), nobody, kept},
	{"in another header", post(mine, "X-Api-Key: "+mineCanary+"\r\n", "x"), nobody, kept},
	{"as a proxy's", post(mine, "Proxy-Authorization: Bearer "+mineCanary+"\r\n", "x"), nobody, kept},
	{"in the body", post(mine, "", mineCanary), nobody, kept},
	{"twice", post(mine, bears(mineCanary)+bears(mineCanary), "x"), badHeader, kept},
	{"right and wrong", post(mine, bears(mineCanary)+bears("x"), "x"), badHeader, kept},
	{"as a list", post(mine, "Authorization: Bearer x, Bearer "+mineCanary+"\r\n", "x"), nobody, kept},
	{"one letter less", post(mine, bears(mineCanary[:len(mineCanary)-1]), "x"), nobody, kept},
	{"one letter more", post(mine, bears(mineCanary+"x"), "x"), nobody, kept},
	{"in capitals", post(mine, bears(strings.ToUpper(mineCanary)), "x"), nobody, kept},
	{"its hash for the token", post(mine, bears(hashOf(mineCanary)), "x"), nobody, kept},
	{"its hash in hexadecimal", post(mine, bears(hashOf(mineCanary)[7:]), "x"), nobody, kept},
	{"a token of 7 KiB", post(mine, bears(x(7<<10)), "x"), nobody, kept},
	{"a token of 8 KiB", post(mine, bears(x(8<<10)), "x"), "431 headers_too_large", closed},
	{"a token with a NUL", post(mine, bears(mineCanary+"\x00"), "x"), badRequest, closed},
	{"a token that is no ASCII", post(mine, bears("ключ\xff"), "x"), nobody, kept},
	{"another namespace's", post(mine, bears(theirsCanary), "x"), another, kept},
	{"mine, on another namespace", post("/v1/theirs/p", bears(mineCanary), "x"), another, kept},
	{"mine, on no namespace", post("/v1/nothing/p", bears(mineCanary), "x"), another, kept},
	{"no token, on no namespace", aim("/v1/nothing/p"), nobody, kept},
	{"the admin's", post(mine, bears(adminCanary), "x"), nobody, kept},
	{"no token, mixed", post("/v1/mine", asJSON, `[{"partition":"p","data":1}]`), nobody, kept},
	{"no token, asking for a depth", request("GET "+mine, "", ""), nobody, kept},
	{"no token, HEAD", request("HEAD "+mine, "", ""), "401", kept},
	{"no token, expecting", request("POST "+mine, "Expect: 100-continue\r\nContent-Length: 1\r\n", ""), nobody, closed},
	{"no token, 1 MiB announced", request("POST "+mine, "Content-Length: 1048576\r\n", ""), nobody, closed},
	{"no token, and a smuggled one", request("POST "+mine, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled), badRequest, closed},
	{"no token, in the body of one with a token", post(mine, bears(mineCanary), aim(mine)), ok, kept},
	{"no token, after one with a token", post(mine, bears(mineCanary), "x") + aim(mine), ok + " | " + nobody, kept},
	{"a namespace around the path", post("/v1/theirs/../mine/p", bears(theirsCanary), "x"), badRequest, kept},
	{"a probe needs none", request("GET /livez", "", ""), "200 status=ok", kept},
}

const spent = "429 rate_limited scope=token Retry-After"

// quotas are about who uses up what. The rows are in order.
var quotas = []row{
	{"ten entries at once", post("/v1/limited/p", bears(limitedCanary)+asNDJSON, strings.Repeat("x\n", 10)), "200 accepted=10", kept},
	{"one more", post("/v1/limited/p", bears(limitedCanary), "x"), spent, kept},
	{"one more, of another partition", post("/v1/limited/q", bears(limitedCanary), "y"), spent, kept},
	{"one more, mixed", post("/v1/limited", bears(limitedCanary)+asJSON, `[{"partition":"p","data":1}]`), spent, kept},
	{"one more, under a key", post("/v1/limited/p", bears(limitedCanary)+"Idempotency-Key: k\r\n", "x"), spent, kept},
	{"one more, from elsewhere", post("/v1/limited/p", bears(limitedCanary)+"X-Forwarded-For: 203.0.113.7\r\n", "x"), spent, kept},
	{"a question instead", request("GET /v1/limited/nobody", bears(limitedCanary), ""), spent, kept},
	{"another token is not concerned", post(mine, bears(mineCanary), "y"), ok, kept},
	{"a first new partition", post("/v1/new/one", bears(newCanary), "x"), ok, kept},
	{"a second", post("/v1/new/two", bears(newCanary), "x"), ok, kept},
	{"a third", post("/v1/new/three", bears(newCanary), "x"), "429 too_many_partitions scope=token Retry-After", kept},
	{"ten more", post("/v1/new", bears(newCanary)+asNDJSON, manyPartitions("more", 10)), "429 too_many_partitions scope=token Retry-After", kept},
	{"one known and one new", post("/v1/new", bears(newCanary)+asNDJSON, `{"partition":"one","data":1}`+"\n"+manyPartitions("even-more", 1)),
		"200 accepted=1 1:retry/too_many_partitions", kept},
	{"a known one goes on", post("/v1/new/two", bears(newCanary), "y"), ok, kept},
}

// guardedAdmins are inputs of an admin port that asks for a token.
var guardedAdmins = []row{
	{"no token", asked("GET /api/v1/namespaces/mine", ""), nobody, kept},
	{"no token, metrics", asked("GET /metrics", ""), nobody, kept},
	{"no token, lmstfy's queues", asked("GET /info", ""), nobody, kept},
	{"no token, profiles", asked("GET /debug/pprof/heap", ""), nobody, kept},
	{"a client's token", asked("GET /api/v1/namespaces/mine", bears(mineCanary)), nobody, kept},
	{"the token's hash", asked("GET /api/v1/namespaces/mine", bears(hashOf(adminCanary))), nobody, kept},
	{"the token in the query", asked("GET /api/v1/namespaces/mine?token="+adminCanary, ""), nobody, kept},
	{"the token under another name", "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n" + bears(adminCanary) + "\r\n", badHost, kept},
	{"the token from another origin", asked("POST /api/v1/namespaces/mine",
		bears(adminCanary)+"Origin: http://evil.example\r\nContent-Length: 0\r\n"), crossed, kept},
	{"a broken Basic", asked("GET /metrics", "Authorization: Basic %%%\r\n"), nobody, kept},
	{"the token", asked("GET /api/v1/namespaces/mine", bears(adminCanary)), "200", kept},
	{"a viewer", asked("GET /api/v1/namespaces/mine", bears(viewerCanary)), "200", kept},
	{"a viewer who peeks", asked("GET /api/v1/namespaces/mine/partitions/p/peek", bears(viewerCanary)), another, kept},
	{"a viewer who tails", asked("GET /api/v1/namespaces/mine/tail", bears(viewerCanary)), another, kept},
	{"a viewer who pauses", asked("POST /api/v1/namespaces/mine/pause", bears(viewerCanary)+asJSON+"Content-Length: 2\r\n") + "{}", another, closed},
	{"a viewer who says more", asked("POST /api/v1/namespaces/mine/pause", bears(viewerCanary)+"X-Role: admin\r\n"+asJSON+
		"Content-Length: 2\r\n") + "{}", another, closed},
	{"a viewer and the admin's at once", asked("GET /debug/pprof/heap", bears(viewerCanary)+bears(adminCanary)), nobody, kept},
	{"an operator who purges", asked("POST /api/v1/namespaces/mine/purge", bears(opsCanary)+asJSON+"Content-Length: 13\r\n") + `{"confirm":1}`, another, closed},
	{"an operator who deletes dead letters", asked("POST /api/v1/namespaces/mine/dead/delete",
		bears(opsCanary)+asJSON+"Content-Length: 13\r\n") + `{"confirm":1}`, another, closed},
	{"a viewer who reads dead letters", asked("GET /api/v1/namespaces/mine/dead", bears(viewerCanary)), another, kept},
	{"an operator who reloads", asked("POST /api/v1/reload", bears(opsCanary)+asJSON+"Content-Length: 2\r\n") + "{}", another, closed},
	{"an operator without masks", asked("GET /api/v1/namespaces/mine/partitions/p/peek?unmasked=1", bears(opsCanary)), another, kept},
	{"an operator's profile", asked("GET /debug/pprof/goroutine", bears(opsCanary)), another, kept},
	{"a probe needs none", asked("GET /livez", ""), "200 status=ok", kept},
}
