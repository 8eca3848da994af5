package main

import "fmt"

// asked is a request to the admin port under one of its own names.
func asked(line, headers string) string {
	return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n"
}

// acts is a write below the namespace of most rows.
func acts(path, headers, body string) string {
	return asked("POST "+ledgerPath+path, fmt.Sprintf("%sContent-Length: %d\r\n", headers, len(body))) + body
}

// controls is a write of what is made at run time.
func controls(path, headers, body string) string {
	return asked("POST "+controlPath+path, fmt.Sprintf("%sContent-Length: %d\r\n", headers, len(body))) + body
}

// hosted is a request under any name.
func hosted(line, host string) string {
	return line + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

const (
	ledgerPath  = "/api/v1/namespaces/default"
	controlPath = "/api/v1/control/"
	badHost     = "403 bad_host"
	crossed     = "403 cross_origin"
	notGet      = "405 method_not_allowed Allow=GET,HEAD"
	notPost     = "405 method_not_allowed Allow=POST"
	noJSON      = "415 unsupported_type"
	noRoute     = "404 no_such_route"
	// What net/http rejects by itself is text.
	malformed = "400 text"
)

// admins are inputs of the admin port. None of them may change anything.
var admins = []row{
	{"a name that was re-pointed", hosted("GET "+ledgerPath, "evil.example"), badHost, kept},
	{"a re-pointed name with our port", hosted("GET "+ledgerPath, "evil.example:8081"), badHost, kept},
	{"a name that begins like ours", hosted("GET /metrics", "127.0.0.1.evil.example"), badHost, kept},
	{"localhost as a subdomain", hosted("GET /metrics", "localhost.evil.example"), badHost, kept},
	{"a public address", hosted("GET /metrics", "203.0.113.7"), badHost, kept},
	{"a private address", hosted("GET /metrics", "10.0.0.1"), badHost, kept},
	{"no address", hosted("GET /metrics", "0.0.0.0"), badHost, kept},
	{"an empty Host", hosted("GET /metrics", ""), badHost, kept},
	{"a decimal address", hosted("GET /metrics", "2130706433"), badHost, kept},
	{"a hexadecimal address", hosted("GET /metrics", "0x7f000001"), badHost, kept},
	{"the profiles under another name", hosted("GET /debug/pprof/heap", "evil.example"), badHost, kept},
	{"a probe under another name", hosted("GET /livez", "evil.example"), badHost, kept},
	{"a whole URL of another host", hosted("GET http://evil.example/metrics", "127.0.0.1"), badHost, kept},
	{"two Hosts", "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", malformed, closed},
	{"no Host", "GET /livez HTTP/1.1\r\n\r\n", malformed, closed},
	{"a Host with a space", hosted("GET /livez", "127.0.0.1 evil.example"), malformed, closed},
	{"localhost", hosted("GET /livez", "localhost"), "200 status=ok", kept},
	{"IPv6 loopback", hosted("GET /livez", "[::1]:8081"), "200 status=ok", kept},

	{"a write from another origin", asked("POST "+ledgerPath, "Origin: http://evil.example\r\nContent-Length: 0\r\n"), crossed, kept},
	{"a write from origin null", asked("POST "+ledgerPath, "Origin: null\r\nContent-Length: 0\r\n"), crossed, kept},
	{"a write that says cross-site", asked("DELETE "+ledgerPath, "Sec-Fetch-Site: cross-site\r\n"), crossed, kept},
	{"a write from a neighbouring site", asked("PUT "+ledgerPath, "Sec-Fetch-Site: same-site\r\nContent-Length: 0\r\n"), crossed, kept},
	{"a form from another origin", asked("POST /",
		"Origin: http://evil.example\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n") + "a=b", crossed, closed},
	{"a preflight", asked("OPTIONS "+ledgerPath, "Origin: http://evil.example\r\nAccess-Control-Request-Method: DELETE\r\n"), notGet, kept},
	{"a WebSocket from another origin", asked("GET "+ledgerPath, "Origin: http://evil.example\r\nConnection: Upgrade\r\nUpgrade: "+
		"websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"), crossed, kept},
	{"a profile started by an image", asked("GET /debug/pprof/profile?seconds=1", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), crossed, kept},
	{"a profile started by a link", asked("GET /debug/pprof/profile?seconds=1", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), crossed, kept},
	{"an audit started by an image", asked("GET "+ledgerPath+"?audit=1", "Sec-Fetch-Site: cross-site\r\n"), crossed, kept},

	{"POST of a namespace", asked("POST "+ledgerPath, "Content-Length: 0\r\n"), notGet, kept},
	{"DELETE of a namespace", asked("DELETE "+ledgerPath, ""), notGet, kept},
	{"PUT of the list", asked("PUT /api/v1/namespaces", "Content-Length: 0\r\n"), notGet, kept},
	{"TRACE", asked("TRACE /livez", ""), notGet, kept},
	{"POST of a profile", asked("POST /debug/pprof/symbol", "Content-Length: 0\r\n"), notGet, kept},
	{"POST of the metrics", asked("POST /metrics", "Content-Length: 0\r\n"), notGet, kept},
	{"CONNECT", "CONNECT 127.0.0.1:6379 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404 text", kept},
	{"an override by header", asked("GET "+ledgerPath, "X-HTTP-Method-Override: DELETE\r\n"), "200", kept},
	{"an override by query", asked("GET "+ledgerPath+"?_method=DELETE&purge=1&pause=1", ""), "400 bad_parameter", kept},
	{"GET of what would purge", asked("GET "+ledgerPath+"/purge", ""), notPost, kept},
	{"GET of what would pause", asked("GET "+ledgerPath+"/pause?yes=1", ""), notPost, kept},
	{"GET of what would reload", asked("GET /api/v1/reload", ""), notPost, kept},
	{"GET of what would replay", asked("GET "+ledgerPath+"/dead/replay", ""), notPost, kept},
	{"GET of what would delete", asked("GET "+ledgerPath+"/dead/delete", ""), notPost, kept},
	{"a replay of everything", acts("/dead/replay", asJSON, `{}`), badRequest, closed},
	{"a replay of a pattern", acts("/dead/replay", asJSON, `{"confirm":1,"letters":["*"]}`), badRequest, closed},
	{"a replay as fast as it can", acts("/dead/replay", asJSON, `{"confirm":1,"per_second":1000000}`), "400 bad_parameter", closed},
	{"a delete from another origin", acts("/dead/delete", "Origin: null\r\n"+asJSON, `{"confirm":1}`), crossed, closed},
	{"a letter up out of the list", asked("GET "+ledgerPath+"/dead/..%2f..%2fx", ""), "404 no_such_dead_letter", kept},
	{"a cursor of another list", asked("GET "+ledgerPath+"/dead?after=9.9", ""), badRequest, kept},
	{"a cursor of nonsense", asked("GET "+ledgerPath+"/dead?after=%00%2B-1", ""), badRequest, kept},
	{"a pause from another origin", acts("/pause", "Origin: http://evil.example\r\n"+asJSON, "{}"), crossed, closed},
	{"a purge that says cross-site", acts("/purge", "Sec-Fetch-Site: cross-site\r\n"+asJSON, `{"confirm":1}`), crossed, closed},
	{"a pause by a form", acts("/pause", "Content-Type: application/x-www-form-urlencoded\r\n", "reason=x"), noJSON, closed},
	{"a pause as text, as a form can send it", acts("/pause", "Content-Type: text/plain\r\n", "{}"), noJSON, closed},
	{"a pause without a type", acts("/pause", "", "{}"), noJSON, closed},
	{"a pause without a body", acts("/pause", asJSON, ""), badRequest, kept},
	{"a pause with a reason of 40 KiB", acts("/pause", asJSON, `{"reason":"`+x(40<<10)+`"}`), badRequest, closed},
	{"a pause of 70 KiB", acts("/pause", asJSON, `{"reason":"`+x(70<<10)+`"}`), "413 body_too_large", closed},
	{"a pause in an array", acts("/pause", asJSON, `[{}]`), badRequest, closed},
	{"a pause, and another one", acts("/pause", asJSON, `{}{}`), badRequest, closed},
	{"a pause of markup", acts("/pause", asJSON, `{"part":"<script>"}`), "404 no_such_partition", closed},
	{"a pause of every partition by a pattern", acts("/pause", asJSON, `{"part":"*"}`), "404 no_such_partition", closed},
	{"a purge without a count", acts("/purge", asJSON, `{}`), badRequest, closed},
	{"a purge of none", acts("/purge", asJSON, `{"confirm":0}`), "400 bad_parameter", closed},
	{"a purge with a misspelt age", acts("/purge", asJSON, `{"confirm":1,"older_then":"1h"}`), "400 bad_parameter", closed},
	{"a purge of a negative age", acts("/purge", asJSON, `{"confirm":1,"older_than":"-1h"}`), "400 bad_parameter", closed},
	{"a purge of a pattern", acts("/purge", asJSON, `{"confirm":1,"partition":"*"}`), "400 bad_partition", closed},
	{"a purge of a namespace that is none", asked("POST /api/v1/namespaces/nobody/purge", asJSON+"Content-Length: 16\r\n") + `{"dry_run":true}`, "404 no_such_namespace", closed},
	{"PUT of namespaces of queues", asked("PUT "+controlPath+"namespaces", "Content-Length: 0\r\n"), "405 method_not_allowed Allow=GET,HEAD,POST", kept},
	{"GET of what would revoke", asked("GET "+controlPath+"admin-tokens/revoke", ""), notPost, kept},
	{"DELETE of a namespace of queues", asked("DELETE "+controlPath+"namespaces/default/delete", ""), notPost, kept},
	{"a namespace from another origin", controls("namespaces", "Origin: null\r\n"+asJSON, `{"namespace":"evil"}`), crossed, closed},
	{"a namespace by a form", controls("namespaces", "Content-Type: application/x-www-form-urlencoded\r\n", "namespace=evil"), noJSON, closed},
	{"a namespace that the file names", controls("namespaces", asJSON, `{"namespace":"default"}`), "409 conflict", closed},
	{"a namespace of markup", controls("namespaces", asJSON, `{"namespace":"<script>"}`), badRequest, closed},
	{"a namespace that is a key of ours", controls("namespaces", asJSON, `{"namespace":"a}:doc"}`), badRequest, closed},
	{"a namespace of 2^40 shards", controls("namespaces", asJSON, `{"namespace":"evil","shards":1099511627776}`), badRequest, closed},
	{"a namespace in a pool that is a URL", controls("namespaces", asJSON, `{"namespace":"evil","pool":"redis://evil.example"}`), badRequest, closed},
	{"a namespace with a description of 40 KiB", controls("namespaces", asJSON, `{"namespace":"evil","description":"`+x(40<<10)+`"}`), badRequest, closed},
	{"a namespace with a sink", controls("namespaces", asJSON, `{"namespace":"evil","sink":"exec:"}`), badRequest, closed},
	{"the end of a namespace of the file", controls("namespaces/default/delete", asJSON, `{"force":true}`), "404 no_such_route", closed},
	{"a token for a buffer", controls("namespaces/default/tokens", asJSON, `{}`), "404 no_such_route", closed},
	{"a token for no namespace", controls("namespaces/..%2f..%2fx/tokens", asJSON, `{}`), "404 no_such_namespace", closed},
	{"an admin token where everybody is one", controls("admin-tokens", asJSON, `{"name":"evil","role":"viewer"}`), "409 conflict", closed},
	{"an admin token above admins", controls("admin-tokens", asJSON, `{"name":"evil","role":"root"}`), badRequest, closed},
	{"an admin token instead of its hash", controls("admin-tokens", asJSON, `{"name":"evil","role":"viewer","hash":"evil"}`), badRequest, closed},
	{"partitions by markup", asked("GET "+ledgerPath+"/partitions?sort=%3Cscript%3E", ""), "400 bad_parameter", kept},
	{"partitions beyond the last", asked("GET "+ledgerPath+"/partitions?offset=9999999999999", ""), "400 bad_offset", kept},
	{"a million partitions at once", asked("GET "+ledgerPath+"/partitions?limit=1000000", ""), "400 bad_limit", kept},
	{"partitions of a name that is markup", asked("GET "+ledgerPath+"/partitions?q=%3Cscript%3E", ""), "200", kept},
	{"one partition, by a pattern", asked("GET "+ledgerPath+"/partitions/*", ""), "400 bad_partition", kept},
	{"a peek at a key of ours", asked("GET "+ledgerPath+"/partitions/default%7D:q:p/peek", ""), "400 bad_partition", kept},
	{"a peek up out of the namespace", asked("GET "+ledgerPath+"/partitions/..%2f..%2fkart/peek", ""), "400 bad_partition", kept},
	{"a peek at more than there may be", asked("GET "+ledgerPath+"/partitions/p/peek?limit=100000", ""), "400 bad_limit", kept},
	{"a tail from another site", asked("GET "+ledgerPath+"/tail", "Sec-Fetch-Site: cross-site\r\n"), crossed, kept},
	{"a tail of a thousand a second", asked("GET "+ledgerPath+"/tail?per_second=1000", ""), "400 bad_parameter", kept},
	{"a tail of a pattern", asked("GET "+ledgerPath+"/tail?partition=*", ""), "400 bad_partition", kept},
	{"drops for a reason of markup", asked("GET /api/v1/drops?reason=%3Cscript%3E", ""), badRequest, kept},
	{"a file above the console", asked("GET /console/..%2fconsole.go", ""), "404 text", kept},
	{"HEAD of a namespace", asked("HEAD "+ledgerPath, ""), "200", kept},

	{"the command line", asked("GET /debug/pprof/cmdline", ""), noRoute, kept},
	{"the command line, with a slash", asked("GET /debug/pprof/cmdline/", ""), "404 text", kept},
	{"the command line, escaped", asked("GET /debug/pprof/%63mdline", ""), noRoute, kept},
	{"a profile longer than an answer", asked("GET /debug/pprof/profile?seconds=100000", ""), badRequest, kept},
	{"a trace of no length", asked("GET /debug/pprof/trace?seconds=NaN", ""), badRequest, kept},
	{"a heap's profile over an hour", asked("GET /debug/pprof/heap?seconds=3600", ""), badRequest, kept},
	{"a profile nobody knows", asked("GET /debug/pprof/nothing", ""), "404 text", kept},
	{"the ingest's own paths", asked("GET /v1/default/p", ""), noRoute, kept},
	{"up out of the API", asked("GET /api/v1/../../etc/passwd", ""), "307", kept},
	{"up, escaped", asked("GET /api/v1/namespaces/..%2f..%2fetc%2fpasswd", ""), "404 no_such_namespace", kept},
	{"markup for a namespace", asked("GET /api/v1/namespaces/%3Cscript%3Ealert(1)%3C%2Fscript%3E", ""), "404 no_such_namespace", kept},
	{"a line end for a namespace", asked("GET /api/v1/namespaces/a%0d%0aSet-Cookie:%20b=c", ""), "404 no_such_namespace", kept},
	{"a NUL for a namespace", asked("GET /api/v1/namespaces/a%00", ""), "404 no_such_namespace", kept},
	{"a key of ours for a namespace", asked("GET /api/v1/namespaces/default%7D:q:*", ""), "404 no_such_namespace", kept},
	{"an audit of nonsense", asked("GET "+ledgerPath+"?audit=%FF", ""), "400 bad_parameter", kept},
	{"a header of 20 KiB", asked("GET /livez", "X-A: "+x(20<<10)+"\r\n"), "431 text", closed},
	{"CL and TE", asked("POST /livez", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + smuggled, notGet, closed},
	{"two lengths", asked("POST /livez", "Content-Length: 1\r\nContent-Length: 2\r\n") + "xy", malformed, closed},
	{"noise", "\xff\xfe\r\n\r\n", malformed, closed},
	{"a body of 1 MiB that nobody reads", asked("POST /livez", "Content-Length: 1048576\r\n") + x(1<<20), notGet, closed},
}
