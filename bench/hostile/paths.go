package main

import "strings"

const badPartition = "400 bad_partition"

// aim is a POST of one byte to a path.
func aim(path string) string { return post(path, "", "x") }

// paths are spellings of a target that only look like one of ours, or lead to
// somewhere else after somebody has normalised them.
var paths = []row{
	{"up out of the version", aim("/v1/../admin"), badRequest, kept},
	{"up and down again", aim("/v1/default/../default/p"), badRequest, kept},
	{"up, escaped", aim("/v1/%2e%2e%2fadmin"), badRequest, kept},
	{"up, half escaped", aim("/v1/default/.%2e/p"), badRequest, kept},
	{"up, escaped twice", aim("/v1/default/%252e%252e"), badRequest, kept},
	{"up with backslashes", aim(`/v1/default/..\..\admin`), badPartition, kept},
	{"up, over-long UTF-8", aim("/v1/default/%c0%ae%c0%ae/p"), badRequest, kept},
	{"the folder itself", aim("/v1/default/./p"), badRequest, kept},
	{"two slashes inside", aim("/v1//default/p"), badRequest, kept},
	{"two slashes before the partition", aim("/v1/default//p"), badRequest, kept},
	{"two slashes first: a host", aim("//admin/v1/default/p"), badRequest, kept},
	{"three slashes first", aim("///v1/default/p"), badRequest, kept},
	{"an escaped slash", aim("/v1/default%2fp"), badRequest, kept},
	{"an escaped letter", aim("/v1/default/%70"), badRequest, kept},
	{"an escaped NUL", aim("/v1/default/p%00"), badRequest, kept},
	{"an escaped line end", aim("/v1/default/p%0d%0aX-A:%20b"), badRequest, kept},
	{"an escaped brace, twice", aim("/v1/default/%257Bp%257D"), badRequest, kept},
	{"an escape of no number", aim("/v1/default/%zz"), badPartition, kept},
	{"an escape cut short", aim("/v1/default/p%"), badPartition, kept},
	{"a plus for a space", aim("/v1/default/a+b"), badPartition, kept},
	{"parameters of a segment", aim("/v1/default/p;a=b"), badPartition, kept},
	{"a fragment", aim("/v1/default/p#admin"), badRequest, kept},
	{"a fragment in the query", aim("/v1/default/p?a#b"), badRequest, kept},
	{"a slash at the end", aim("/v1/default/p/"), badPartition, kept},
	{"one segment too many", aim("/v1/default/p/q"), badPartition, kept},
	{"no partition", aim("/v1/default/"), badPartition, kept},
	{"no namespace", aim("/v1/"), "400 bad_namespace", kept},
	{"an empty namespace", aim("/v1//p"), badRequest, kept},
	{"a namespace of 65 letters", aim("/v1/" + x(65) + "/p"), "400 bad_namespace", kept},
	{"a namespace with a dash first", aim("/v1/-d/p"), "400 bad_namespace", kept},
	{"a namespace with braces", aim("/v1/{d}/p"), "400 bad_namespace", kept},
	{"somebody's namespace", aim("/v1/nobody/p"), "404 no_such_namespace", kept},
	{"a namespace in capitals", aim("/v1/DEFAULT/p"), "404 no_such_namespace", kept},
	{"a namespace like a key of ours", aim("/v1/sw:{default.0}/p"), "400 bad_namespace", kept},
	{"another version", aim("/v2/default/p"), "404 no_such_route", kept},
	{"the version in capitals", aim("/V1/default/p"), "404 no_such_route", kept},
	{"nothing, which is SQS's", aim("/"), "403 text", kept},
	{"an empty target", "POST  HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", badRequest, closed},
	{"a target without a slash", aim("v1/default/p"), badRequest, closed},
	{"the admin port's metrics", aim("/metrics"), "404 no_such_route", kept},
	{"the admin port's profiles", request("GET /debug/pprof/", "", ""), "404 no_such_route", kept},
	{"the admin port's API", request("GET /api/v1/namespaces", "", ""), "404 no_such_route", kept},
	{"a space in the path", aim("/v1/default/p q"), badRequest, closed},
	{"a control character in the path", aim("/v1/default/p\x01"), badRequest, closed},
	{"a NUL in the path", aim("/v1/default/p\x00"), badRequest, closed},
	{"a bare CR in the path", aim("/v1/default/p\rX"), badRequest, closed},
	{"8 KiB of path", aim("/v1/default/" + x(8<<10)), "431 headers_too_large", closed},
	{"8 KiB of query", aim(one + "?" + x(8<<10)), "431 headers_too_large", closed},
	{"7 KiB of query", aim(one + "?" + strings.Repeat("a&", 3500)), ok, kept},
	{"a whole URL", aim("http://x/v1/default/p"), ok, kept},
	{"a whole URL of another host", aim("http://evil.example/v1/default/p"), ok, kept},
	{"a whole URL that goes up", aim("http://x/v1/../admin"), badRequest, kept},
	{"a whole URL of another scheme", aim("ftp://x/v1/default/p"), badRequest, kept},
	{"a whole URL of a file", aim("file:///etc/passwd"), badRequest, kept},
}

// names are partitions, in the path and in the items of a mixed body.
var names = func() []row {
	var rows []row
	for _, n := range []struct{ what, name, inPath string }{
		{"127 letters and one", x(128), ok},
		{"129 letters", x(129), badPartition},
		{"64 KiB", x(64 << 10), "431 headers_too_large"},
		{"empty braces", "{}", badPartition},
		{"a tag inside", "a}{p1}b", badPartition},
		{"a tag after an empty one", "x{}b{p1}", badPartition},
		{"an open tag", "{p1", badPartition},
		{"a pattern of Redis", "*", badPartition},
		{"a pattern of one", "a[b-c]", badPartition},
		{"a colon", "a:b", badPartition},
		{"a dash first", "-rf", badPartition},
		{"a dot first", ".hidden", badPartition},
		{"a prototype", "__proto__", badPartition},
		{"a word with a bell", "a\a", ""},
		{"right to left", "a\u202eb", badPartition},
		{"a Cyrillic a", "\u0430bc", badPartition},
		{"a full-width letter", "\uff41", badPartition},
		{"a zero-width space", "a\u200bb", badPartition},
		{"a combining mark", "e\u0301", badPartition},
		{"bytes that are no UTF-8", "a\xff\xfe", badPartition},
		{"a quote", `a"b`, badPartition},
		{"markup", "<img/src=x>", badPartition},
		{"a template", "${jndi:x}", badPartition},
		{"a command", "a;reboot", badPartition},
		{"SQL", "a'--", badPartition},
		{"a name of a device", "CON", ok},
		{"null", "null", ok},
		{"only digits", "0", ok},
		{"dots", "a..b", ok},
	} {
		if n.inPath != "" {
			f := kept
			if strings.HasPrefix(n.inPath, "431") {
				f = closed
			}
			rows = append(rows, row{n.what + ", in the path", aim("/v1/default/" + n.name), n.inPath, f})
		}
		inItem := "200 accepted=0 0:drop/bad_partition"
		if n.inPath == ok {
			inItem = ok
		}
		rows = append(rows, row{n.what + ", in an item", post(mixed, asJSON, `[{"partition":`+quote(n.name)+`,"data":1}]`), inItem, kept})
	}
	for _, n := range [][2]string{
		{"a number", `7`}, {"a list", `["p"]`}, {"an object", `{}`}, {"true", `true`}, {"null", `null`}, {"empty", `""`}, {"an escaped NUL", `"p\u0000"`},
		{"an escaped line end", `"p\r\nq"`}, {"an escaped slash", `"a\/b"`}, {"a lone surrogate", `"\ud800"`},
	} {
		rows = append(rows, row{"a partition that is " + n[0], post(mixed, asNDJSON, `{"partition":`+n[1]+`,"data":1}`), "200 accepted=0 0:drop/bad_partition", kept})
	}
	return append(rows,
		row{"a name written with escapes", post(mixed, asJSON, `[{"partition":"\u0070","data":1}]`), ok, kept},
		row{"no partition", post(mixed, asJSON, `[{"data":1}]`), "200 accepted=0 0:drop/bad_partition", kept},
		row{"a partition given twice: the last counts", post(mixed, asJSON, `[{"partition":"p","partition":"{}","data":1}]`),
			"200 accepted=0 0:drop/bad_partition", kept},
		row{"case pairs are two", post(mixed, asNDJSON, `{"partition":"Pair","data":1}`+"\n"+`{"partition":"pair","data":1}`), "200 accepted=2", kept})
}()

// quote writes text as a JSON string and changes nothing but what it must.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\a", `\u0007`).Replace(s) + `"`
}
