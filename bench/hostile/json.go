package main

import (
	"fmt"
	"strings"
)

const badJSON = "400 bad_json"

func array(body string) string { return post(one, asJSON, body) }
func items(body string) string { return post(mixed, asJSON, body) }
func item(fields string) string {
	return post(one, asJSON, `{"batch":[{`+fields+`}]}`)
}

func nested(open, end string, n int) string {
	return strings.Repeat(open, n) + "1" + strings.Repeat(end, n)
}

var jsons = []row{
	{"an open bracket", array("["), badJSON, kept},
	{"an open string", array(`["`), badJSON, kept},
	{"an open escape", array(`["\`), badJSON, kept},
	{"brackets that do not match", array("[1}"), badJSON, kept},
	{"a comma at the end", array("[1,]"), badJSON, kept},
	{"a comma at the end of an object", array(`{"batch":[{"data":1,}]}`), badJSON, kept},
	{"no comma", array("[1 2]"), badJSON, kept},
	{"two values", array("[1][2]"), badJSON, kept},
	{"a value and junk", array("[1]x"), badJSON, kept},
	{"a value and a NUL", array("[1]\x00"), badJSON, kept},
	{"a byte order mark", array("\ufeff[1]"), badJSON, kept},
	{"UTF-16", array("[\x001\x00]\x00"), badJSON, kept},
	{"a comment", array("[1/*x*/]"), badJSON, kept},
	{"single quotes", array("['a']"), badJSON, kept},
	{"a key without quotes", array("{a:1}"), badJSON, kept},
	{"NaN", array("[NaN]"), badJSON, kept},
	{"Infinity", array("[-Infinity]"), badJSON, kept},
	{"a number with a zero first", array("[01]"), badJSON, kept},
	{"a number with a plus", array("[+1]"), badJSON, kept},
	{"a hexadecimal number", array("[0x1]"), badJSON, kept},
	{"a number that ends with a point", array("[1.]"), badJSON, kept},
	{"True in capitals", array("[True]"), badJSON, kept},
	{"a line end in a string", array("[\"a\nb\"]"), badJSON, kept},
	{"a NUL in a string", array("[\"a\x00b\"]"), badJSON, kept},
	{"an escape nobody knows", array(`["\x41"]`), badJSON, kept},
	{"an escape cut short", array(`["\u12"]`), badJSON, kept},
	{"only spaces", array(" \t\r\n"), badJSON, kept},
	{"100,000 open brackets", array(strings.Repeat("[", 100_000)), badJSON, kept},
	{"100,000 levels of lists", array(nested("[", "]", 100_000)), badJSON, kept},
	{"100,000 levels of objects", array(nested(`{"a":`, "}", 100_000)), badJSON, kept},
	{"levels behind a string full of brackets", array(`["` + strings.Repeat("]", 600) + `",` + nested("[", "]", 600) + `]`), badJSON, kept},
	{"513 levels", array(nested("[", "]", 513)), badJSON, kept},
	{"512 levels", array(nested("[", "]", 512)), ok, kept},
	{"an empty list", array("[]"), "400 empty_batch", kept},
	{"an empty batch", array(`{"batch":[]}`), "400 empty_batch", kept},
	{"an empty batch, named twice", array(`{"batch":[1],"batch":[]}`), "400 empty_batch", kept},
	{"1,001 elements", array("[" + strings.Repeat("1,", 1000) + "1]"), "413 too_many_entries", kept},
	{"100,000 elements", array("[" + strings.Repeat("1,", 99_999) + "1]"), "413 too_many_entries", kept},
	{"100,000 keys", array(`{"batch":[{"data":1` + manyKeys(100_000) + `}]}`), ok, kept},
	{"an element too large", array(`[1,"` + x(entryLimit) + `"]`), "200 accepted=1 1:drop/too_large", kept},
	{"a single value too large", array(`"` + x(entryLimit) + `"`), "413 entry_too_large", kept},
	{"a number of 10,000 digits", array("[" + strings.Repeat("9", 10_000) + "]"), ok, kept},
	{"1e400 is valid JSON", array("[1e400]"), ok, kept},
	{"a lone surrogate", array(`["\ud800"]`), ok, kept},
	{"bytes that are no UTF-8", array("[\"\xff\xfe\"]"), ok, kept},
	{"a key given twice", array(`[{"a":1,"a":2}]`), ok, kept},
	{"a prototype", array(`[{"__proto__":{"admin":true},"constructor":{}}]`), ok, kept},
	{"an object that is no batch", array(`{"Batch":[1]}`), ok, kept},

	{"sent at in quotes", array(`{"sent_at":"1","batch":[{"data":1}]}`), "400 bad_time", kept},
	{"sent at null", array(`{"sent_at":null,"batch":[{"data":1}]}`), "400 bad_time", kept},
	{"sent at with an exponent", array(`{"sent_at":1e12,"batch":[{"data":1}]}`), "400 bad_time", kept},
	{"sent at past 13 digits", array(`{"sent_at":17636296751000,"batch":[{"data":1}]}`), "400 bad_time", kept},

	{"an item that is a number", array(`{"batch":[7,{"data":1}]}`), "200 accepted=1 0:drop/bad_item", kept},
	{"an item that is a list", array(`{"batch":[["data"]]}`), "200 accepted=0 0:drop/bad_item", kept},
	{"an item without data", item(`"id":"a"`), "200 accepted=0 0:drop/bad_item", kept},
	{"an id that is a number", item(`"id":7,"data":1`), "200 accepted=0 0:drop/bad_id", kept},
	{"an empty id", item(`"id":"","data":1`), "200 accepted=0 0:drop/bad_id", kept},
	{"an id of 65", item(`"id":"` + x(65) + `","data":1`), "200 accepted=0 0:drop/bad_id", kept},
	{"an id with a space", item(`"id":"a b","data":1`), "200 accepted=0 0:drop/bad_id", kept},
	{"an id with an escaped line end", item(`"id":"a\nb","data":1`), "200 accepted=0 0:drop/bad_id", kept},
	{"an id with a hash", item(`"id":"#","data":1`), ok, kept},
	{"a ts that is a word", item(`"ts":"now","data":1`), "200 accepted=0 0:drop/bad_ts", kept},
	{"a ts with a fraction", item(`"ts":1.5,"data":1`), "200 accepted=0 0:drop/bad_ts", kept},
	{"a negative ts", item(`"ts":-1,"data":1`), "200 accepted=0 0:drop/bad_ts", kept},
	{"a ts of microseconds", item(`"ts":1763629675100000,"data":1`), "200 accepted=0 0:drop/bad_ts", kept},
	{"a ts of 1970", item(`"ts":1,"data":1`), "200 accepted=1 0:warning/unskewed", kept},
	{"a ts long ago, sent honestly", array(`{"sent_at":1763629675100,"batch":[{"ts":1,"data":1}]}`), "200 accepted=0 0:drop/stale", kept},
	{"keys written with escapes", item(`"\u0064ata":1,"\u0069d":"a b"`), "200 accepted=0 0:drop/bad_id", kept},

	{"an object on the mixed route", items(`{"partition":"p","data":1}`), badJSON, kept},
	{"a number on the mixed route", items("7"), badJSON, kept},
	{"half of a batch is bad", items(`[{"partition":"p","data":1},{"partition":"/","data":1},7,{"partition":"p"}]`),
		"200 accepted=1 1:drop/bad_partition 2:drop/bad_item 3:drop/bad_item", kept},
	{"a line that is no JSON", post(mixed, asNDJSON, "{\"partition\":\"p\",\"data\":1}\nnot JSON\n"), "400 bad_ndjson", kept},
	{"a line of two values", post(mixed, asNDJSON, `{"partition":"p","data":1}{"partition":"p","data":1}`), "400 bad_ndjson", kept},
	{"a line 100,000 levels deep", post(mixed, asNDJSON, nested("[", "]", 100_000)), "400 bad_ndjson", kept},
	{"an object over two lines", post(mixed, asNDJSON, "{\"partition\":\n\"p\",\"data\":1}"), "400 bad_ndjson", kept},
	{"1,000 partitions", post(mixed, asNDJSON, manyPartitions("many", 1000)), "200 accepted=1000", kept},
	{"a type in capitals", post(one, "Content-Type: APPLICATION/JSON ; charset=x\r\n", "["), badJSON, kept},
	{"a type that only begins like JSON", post(one, "Content-Type: application/jsonx\r\n", "["), ok, kept},
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return b.String()
}

func manyPartitions(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"partition\":\"%s-%d\",\"data\":1}\n", name, i)
	}
	return b.String()
}

const (
	tooMany = "429 too_many_partitions scope=namespace Retry-After"
	few     = "/v1/few" // three partitions at most, and its sink never takes a batch
)

// cardinality is about who fills a namespace with names. The rows are in order.
var cardinality = []row{
	{"the first partition", aim(few + "/one"), ok, kept},
	{"the second", aim(few + "/two"), ok, kept},
	{"the third", aim(few + "/three"), ok, kept},
	{"one too many", aim(few + "/four"), tooMany, kept},
	{"one too many, as lines", post(few+"/five", asNDJSON, "a\nb\nc"), tooMany, kept},
	{"one too many, as an array", post(few+"/six", asJSON, "[1,2]"), tooMany, kept},
	{"one too many, under a key", post(few+"/seven", "Idempotency-Key: k\r\n", "x"), tooMany, kept},
	{"1,000 new ones", post(few, asNDJSON, manyPartitions("new", 1000)), tooMany, kept},
	{"one known, two new", post(few, asNDJSON, `{"partition":"one","data":1}`+"\n"+manyPartitions("new", 2)),
		"200 accepted=1 1:retry/too_many_partitions 2:retry/too_many_partitions", kept},
	{"the known ones go on", post(few+"/two", asNDJSON, "a\nb"), "200 accepted=2", kept},
	{"another namespace is not concerned", aim(one), ok, kept},
	{"asking for one makes none", request("GET "+few+"/four", "", ""), "404 no_such_partition", kept},
	{"a full partition drops its own", post("/v1/small/p", asNDJSON, strings.Repeat("x\n", 100)), "200 accepted=100 evicted=95", kept},
}
