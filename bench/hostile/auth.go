package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Tokens of the guarded server, secrets like the others.
const (
	mineToken    = "canary-token-mine-31d8"
	theirsToken  = "canary-token-theirs-8f02"
	limitedToken = "canary-token-limited-c6b5"
	newToken     = "canary-token-new-77e1"
	adminToken   = "canary-token-admin-a90c"
)

func hashOf(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

// guardedSpaces are its namespaces. A request holds ten entries there at most,
// so that a bucket of ten is the smallest there is.
var guardedSpaces = map[string]string{
	"mine":    fmt.Sprintf(`sink: "null:", tokens: [%q]`, hashOf(mineToken)),
	"theirs":  fmt.Sprintf(`sink: "null:", tokens: [%q]`, hashOf(theirsToken)),
	"limited": fmt.Sprintf(`sink: "null:", tokens: [{hash: %q, name: limited, rate: 1/h}]`, hashOf(limitedToken)),
	"new":     fmt.Sprintf(`sink: "null:", linger: 3m, tokens: [{hash: %q, name: new, new_partitions: 2/h}]`, hashOf(newToken)),
}

const (
	nobody  = "401 unauthorized"
	another = "403 forbidden"
	mine    = "/v1/mine/p"
)

func bears(token string) string { return "Authorization: Bearer " + token + "\r\n" }

var auth = []row{
	{"the right token", post(mine, bears(mineToken), "x"), ok, kept},
	{"its scheme in small letters", post(mine, "authorization: bearer "+mineToken+"\r\n", "x"), ok, kept},
	{"no token", aim(mine), nobody, kept},
	{"nobody's token", post(mine, bears("sw_nobody"), "x"), nobody, kept},
	{"an empty token", post(mine, "Authorization: Bearer \r\n", "x"), nobody, kept},
	{"the scheme alone", post(mine, "Authorization: Bearer\r\n", "x"), nobody, kept},
	{"no scheme", post(mine, "Authorization: "+mineToken+"\r\n", "x"), nobody, kept},
	{"as Basic", post(mine, "Authorization: Basic "+mineToken+"\r\n", "x"), nobody, kept},
	{"behind a tab", post(mine, "Authorization: Bearer\t"+mineToken+"\r\n", "x"), nobody, kept},
	{"in the query", aim(mine + "?access_token=" + mineToken), nobody, kept},
	{"in the query, as a beacon", aim(mine + "?k=" + mineToken), nobody, kept},
	{"in a cookie", post(mine, "Cookie: token="+mineToken+"\r\n", "x"), nobody, kept},
	{"in another header", post(mine, "X-Api-Key: "+mineToken+"\r\n", "x"), nobody, kept},
	{"as a proxy's", post(mine, "Proxy-Authorization: Bearer "+mineToken+"\r\n", "x"), nobody, kept},
	{"in the body", post(mine, "", mineToken), nobody, kept},
	{"twice", post(mine, bears(mineToken)+bears(mineToken), "x"), nobody, kept},
	{"right and wrong", post(mine, bears(mineToken)+bears("x"), "x"), nobody, kept},
	{"as a list", post(mine, "Authorization: Bearer x, Bearer "+mineToken+"\r\n", "x"), nobody, kept},
	{"one letter less", post(mine, bears(mineToken[:len(mineToken)-1]), "x"), nobody, kept},
	{"one letter more", post(mine, bears(mineToken+"x"), "x"), nobody, kept},
	{"in capitals", post(mine, bears(strings.ToUpper(mineToken)), "x"), nobody, kept},
	{"its hash for the token", post(mine, bears(hashOf(mineToken)), "x"), nobody, kept},
	{"its hash in hexadecimal", post(mine, bears(hashOf(mineToken)[7:]), "x"), nobody, kept},
	{"a token of 7 KiB", post(mine, bears(x(7<<10)), "x"), nobody, kept},
	{"a token of 8 KiB", post(mine, bears(x(8<<10)), "x"), "431 headers_too_large", closed},
	{"a token with a NUL", post(mine, bears(mineToken+"\x00"), "x"), badRequest, closed},
	{"a token that is no ASCII", post(mine, bears("ключ\xff"), "x"), nobody, kept},
	{"another namespace's", post(mine, bears(theirsToken), "x"), another, kept},
	{"mine, on another namespace", post("/v1/theirs/p", bears(mineToken), "x"), another, kept},
	{"mine, on no namespace", post("/v1/nothing/p", bears(mineToken), "x"), another, kept},
	{"no token, on no namespace", aim("/v1/nothing/p"), nobody, kept},
	{"the admin's", post(mine, bears(adminToken), "x"), nobody, kept},
	{"no token, mixed", post("/v1/mine", asJSON, `[{"partition":"p","data":1}]`), nobody, kept},
	{"no token, asking for a depth", request("GET "+mine, "", ""), nobody, kept},
	{"no token, HEAD", request("HEAD "+mine, "", ""), "401", kept},
	{"no token, without waiting", aim(mine + "?ack=none"), nobody, kept},
	{"no token, expecting", request("POST "+mine, "Expect: 100-continue\r\nContent-Length: 1\r\n", ""), nobody, closed},
	{"no token, 1 MiB announced", request("POST "+mine, "Content-Length: 1048576\r\n", ""), nobody, closed},
	{"no token, and a smuggled one", request("POST "+mine, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+smuggled), badRequest, closed},
	{"no token, in the body of one with a token", post(mine, bears(mineToken), aim(mine)), ok, kept},
	{"no token, after one with a token", post(mine, bears(mineToken), "x") + aim(mine), ok + " | " + nobody, kept},
	{"a namespace around the path", post("/v1/theirs/../mine/p", bears(theirsToken), "x"), badRequest, kept},
	{"a probe needs none", request("GET /livez", "", ""), "200 status=ok", kept},
}

const spent = "429 rate_limited scope=token Retry-After"

// quotas are about who uses up what. The rows are in order.
var quotas = []row{
	{"ten entries at once", post("/v1/limited/p", bears(limitedToken)+asNDJSON, strings.Repeat("x\n", 10)), "200 accepted=10", kept},
	{"one more", post("/v1/limited/p", bears(limitedToken), "x"), spent, kept},
	{"one more, of another partition", post("/v1/limited/q", bears(limitedToken), "y"), spent, kept},
	{"one more, without waiting", post("/v1/limited/p?ack=none", bears(limitedToken), "x"), spent, kept},
	{"one more, mixed", post("/v1/limited", bears(limitedToken)+asJSON, `[{"partition":"p","data":1}]`), spent, kept},
	{"one more, under a key", post("/v1/limited/p", bears(limitedToken)+"Idempotency-Key: k\r\n", "x"), spent, kept},
	{"one more, from elsewhere", post("/v1/limited/p", bears(limitedToken)+"X-Forwarded-For: 203.0.113.7\r\n", "x"), spent, kept},
	{"asking is free", request("GET /v1/limited/nobody", bears(limitedToken), ""), "404 no_such_partition", kept},
	{"another token is not concerned", post(mine, bears(mineToken), "y"), ok, kept},
	{"a first new partition", post("/v1/new/one", bears(newToken), "x"), ok, kept},
	{"a second", post("/v1/new/two", bears(newToken), "x"), ok, kept},
	{"a third", post("/v1/new/three", bears(newToken), "x"), "429 too_many_partitions scope=token Retry-After", kept},
	{"ten more", post("/v1/new", bears(newToken)+asNDJSON, manyPartitions("more", 10)), "429 too_many_partitions scope=token Retry-After", kept},
	{"one known and one new", post("/v1/new", bears(newToken)+asNDJSON, `{"partition":"one","data":1}`+"\n"+manyPartitions("even-more", 1)),
		"200 accepted=1 1:retry/too_many_partitions", kept},
	{"a known one goes on", post("/v1/new/two", bears(newToken), "y"), ok, kept},
}

// guardedAdmins are inputs of an admin port that asks for a token.
var guardedAdmins = []row{
	{"no token", asked("GET /api/v1/namespaces/mine", ""), nobody, kept},
	{"no token, metrics", asked("GET /metrics", ""), nobody, kept},
	{"no token, profiles", asked("GET /debug/pprof/heap", ""), nobody, kept},
	{"a client's token", asked("GET /api/v1/namespaces/mine", bears(mineToken)), nobody, kept},
	{"the token's hash", asked("GET /api/v1/namespaces/mine", bears(hashOf(adminToken))), nobody, kept},
	{"the token in the query", asked("GET /api/v1/namespaces/mine?token="+adminToken, ""), nobody, kept},
	{"the token under another name", "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n" + bears(adminToken) + "\r\n", badHost, kept},
	{"the token from another origin", asked("POST /api/v1/namespaces/mine", bears(adminToken)+"Origin: http://evil.example\r\nContent-Length: 0\r\n"), crossed, kept},
	{"a broken Basic", asked("GET /metrics", "Authorization: Basic %%%\r\n"), nobody, kept},
	{"the token", asked("GET /api/v1/namespaces/mine", bears(adminToken)), "200", kept},
	{"a probe needs none", asked("GET /livez", ""), "200 status=ok", kept},
}
