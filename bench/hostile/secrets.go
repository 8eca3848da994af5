package main

import "strings"

// secrets are inputs that carry what must not come out again, neither in an
// answer nor anywhere else; and inputs that try to write lines of their own
// into a log or a terminal.
var secrets = []row{
	{"a token", headed("Authorization: Bearer " + headerCanary + "\r\n"), ok, kept},
	{"a cookie", headed("Cookie: session=" + headerCanary + "\r\n"), ok, kept},
	{"a token in the query", aim(one + "?token=" + headerCanary), ok, kept},
	{"a token of a beacon", aim("/beacon/default/p?k=" + headerCanary), "204", kept},
	{"a token of a beacon, twice in a target", aim("http://x/beacon/default/p?k=" + headerCanary + "&k=" + headerCanary), "204", kept},
	{"a token of a beacon in a head that cannot be read", request("POST /beacon/default/p?k="+headerCanary, "X-A : b\r\n", ""), badRequest, closed},
	{"a token of a beacon in a line that cannot be read", "POST /beacon/default/p?k=" + headerCanary + "\r\nHost: x\r\n\r\n", badRequest, closed},
	{"a token of a beacon in a head that is too large", request("POST /beacon/default/p?k="+headerCanary+x(8<<10), "", ""), "431 headers_too_large", closed},
	{"a token where it is rejected", post("/v1/nobody/p", "Authorization: Bearer "+headerCanary+"\r\n", "x"), "404 no_such_namespace", kept},
	{"a token in a head that cannot be read", headed("Authorization: Bearer " + headerCanary + "\r\nX-A : b\r\n"), badRequest, closed},
	{"a token in a head that is too large", headed("Authorization: Bearer " + headerCanary + x(8<<10) + "\r\n"), "431 headers_too_large", closed},
	{"a secret in a path", aim("/v1/default/" + headerCanary + "/"), badPartition, kept},
	{"a secret in an escaped path", aim("/v1/default/%7B" + headerCanary), badRequest, kept},
	{"a secret in a method", request(headerCanary+" "+one, "", ""), "405 method_not_allowed Allow=POST,GET,HEAD,OPTIONS", kept},
	{"a secret in a time", headed("X-Sent-At: " + headerCanary + "\r\n"), "400 bad_time", kept},
	{"a secret in discards", headed("X-Client-Discards: " + headerCanary + "\r\n"), badHeader, kept},
	{"a secret in an encoding", headed("Content-Encoding: " + headerCanary + "\r\n"), unsupported, kept},
	{"a secret in a Host", "GET /livez HTTP/1.1\r\nHost: " + headerCanary + "\r\n\r\n", "200 status=ok", kept},
	{"a secret payload", post(one, "", bodyCanary), ok, kept},
	{"a secret in bad JSON", array(`["` + bodyCanary), badJSON, kept},
	{"a secret in a bad line", post(mixed, asNDJSON, bodyCanary), "400 bad_ndjson", kept},
	{"a secret for a partition", items(`[{"partition":"/` + bodyCanary + `","data":1}]`), "200 accepted=0 0:drop/bad_partition", kept},
	{"a secret in a corrupt body", post(one, asGzip, bodyCanary), corrupt, kept},
	{"a secret in a chunk size", request("POST "+one, "Transfer-Encoding: chunked\r\n", bodyCanary+"\r\n"), badRequest, closed},
	{"a secret to a sink that rejects it", post("/v1/hooked/p", "", bodyCanary), ok, kept},
	{"a batch to a sink that rejects it", post("/v1/hooked/q", asJSON, `["`+bodyCanary+`",{"a":"`+bodyCanary+`"}]`), "200 accepted=2", kept},

	{"line ends in a payload", post("/v1/filed/p", "", "a\r\n{\"namespace\":\"default\",\"partition\":\"forged\"}\r\n"), ok, kept},
	{"terminal sequences in a payload", post("/v1/filed/p", "", "\x1b[2J\x1b]0;owned\a\x00\x7f"), ok, kept},
	{"line separators of Unicode in a payload", post("/v1/filed/p", asJSON, "[\"a\u2028b\u2029c\u0085d\"]"), ok, kept},
	{"line ends between JSON tokens", post("/v1/filed/p", asJSON, "[{\n\"a\"\r:\n1\n}]"), ok, kept},
	{"bytes that are no UTF-8 in a payload", post("/v1/filed/p", "", "\xff\xfe\r\n\xc3"), ok, kept},
	{"a line end in a partition", items(`[{"partition":"p\nlevel=error","data":1}]`), "200 accepted=0 0:drop/bad_partition", kept},
	{"a log line in a user agent", headed("User-Agent: x\" level=error msg=\"owned\r\n"), ok, kept},
	{"a log line in a path", aim("/v1/default/%0alevel=error"), badRequest, kept},
	{"a log line in a head that cannot be read", headed("X-A : \"}\\n{\"level\":\"error\"\r\n"), badRequest, closed},
	{"percent signs for a formatter", aim("/v1/default/%s%s%n%!v(PANIC=x)"), badPartition, kept},
}

// canaries is what no output may hold.
var canaries = []string{redisCanary, userCanary, pathCanary, queryCanary, headerCanary, bodyCanary, mineCanary, theirsCanary, limitedCanary,
	newCanary, adminCanary, viewerCanary, opsCanary}

// leaked returns the first secret that text holds.
func leaked(text string) string {
	for _, s := range canaries {
		if strings.Contains(text, s) {
			return s
		}
	}
	return ""
}
