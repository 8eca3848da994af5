package main

import (
	"encoding/base64"
	"strings"
)

// Routes of other vendors' SDKs. The plain server lists no write keys and listens on
// loopback, so the name of its namespace is its key.
const (
	segment    = "/segment/v1/batch"
	posthog    = "/posthog/batch/"
	amplitude  = "/amplitude/2/httpapi"
	noKey      = "401 unauthorized"
	strangeKey = "401 invalid_api_key" // PostHog's words
	sdkForm    = "Content-Type: application/x-www-form-urlencoded\r\n"
)

func basic(user string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user)) + "\r\n"
}

// segmentBatch sends events under the right key.
func segmentBatch(events string) string {
	return post(segment, basic("default:"), `{"batch":[`+events+`]}`)
}

func amplitudeBatch(events string) string {
	return post(amplitude, "", `{"api_key":"default","events":[`+events+`]}`)
}

func form(text string) string {
	return post(posthog, sdkForm, "data="+base64.StdEncoding.EncodeToString([]byte(text)))
}

// sdks are bodies and keys on the routes of SDKs. An answer that counts nothing, such as
// Segment's, is for one good event.
var sdks = []row{
	{"Segment's batch", segmentBatch(`{}`), ok, kept},
	{"an event over lines", segmentBatch("{\r\n\t\"a\"\r:\n\"\x7f\\u0000\"\n}\n"), ok, kept},
	{"one good event among bad ones", segmentBatch(`7,null,"x",[{}],true,{"a":"` + x(32<<10) + `"},{}`), ok, kept},
	{"an event that is no UTF-8", segmentBatch("{\"a\":\"\xff\xfe\"}"), ok, kept},
	{"equal keys", segmentBatch(`{"messageId":"a","messageId":{},"timestamp":[],"timestamp":"x"}`), ok, kept},
	{"an id with a line end", segmentBatch(`{"messageId":"a\r\nSet-Cookie: b=c"}`), ok, kept},
	{"an id of 30 KB", segmentBatch(`{"messageId":"` + x(30_000) + `"}`), ok, kept},
	{"a time in year 9999", segmentBatch(`{"timestamp":"9999-12-31T23:59:59Z"}`), ok, kept},
	{"a time in year 0", segmentBatch(`{"timestamp":"0000-01-01T00:00:00+23:59"}`), ok, kept},
	{"a time below 0", segmentBatch(`{"timestamp":-9223372036854775808}`), ok, kept},
	{"a clock in year 9999", post(segment, basic("default"), `{"sentAt":"9999-12-31T23:59:59Z","batch":[{"timestamp":"9999-12-31T23:59:59Z"}]}`), ok, kept},
	{"a partition with a brace", segmentBatch(`{"context":{"app":{"name":"}:q:*"}}}`), ok, kept},
	{"a partition that goes up", segmentBatch(`{"context":{"app":{"name":"../../etc/passwd"}}}`), ok, kept},
	{"a partition of 30 KB", segmentBatch(`{"properties":{"game":"` + strings.Repeat("é", 15_000) + `"}}`), ok, kept},
	{"a partition that is a list", segmentBatch(`{"properties":{"game":["a"]},"context":{"app":{"name":{"name":"b"}},"page":7}}`), ok, kept},
	{"a partition that is a number", segmentBatch(`{"properties":{"game":-1e999}}`), ok, kept},
	{"two batches", post(segment, basic("default"), `{"batch":[7,7,7],"batch":[{}]}`), ok, kept},
	{"a batch, then none", post(segment, basic("default"), `{"batch":[{}],"batch":{}}`), badJSON, kept},
	{"a batch that is an object", post(segment, basic("default"), `{"batch":{"0":{}}}`), badJSON, kept},
	{"an array for a batch", post(segment, basic("default"), `[{}]`), badJSON, kept},
	{"a million events", post(segment, basic("default")+asGzip, gzipped(`{"batch":[`+strings.Repeat("{},", 1_000_000)+`{}]}`)), "413 too_many_entries", kept},
	{"a million numbers", post(segment, basic("default")+asGzip, gzipped(`{"batch":[`+strings.Repeat("7,", 1_000_000)+`7]}`)), "413 too_many_entries", kept},
	{"4 MiB of events in gzip, without a key", post(segment, asGzip, gzipped(`{"batch":[`+strings.Repeat("{},", 1_398_000)+`{}]}`)), noKey, kept},
	{"the same of PostHog, the key behind", post(posthog, asGzip,
		gzipped(`{"batch":[`+strings.Repeat("{},", 1_390_000)+`{}],"api_key":"default"}`)), "413 too_many_entries", kept},
	{"an event of 100,000 levels", segmentBatch(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)), badJSON, kept},
	{"an event of 510 levels", segmentBatch(strings.Repeat(`{"a":`, 510) + "1" + strings.Repeat("}", 510)), ok, kept},
	{"a bomb of 64 MiB, not said to be gzip", post(segment, basic("default"), bomb), tooLarge, kept},
	{"a bomb in base64", form(bomb), badJSON, kept},
	{"gzip in gzip", post(posthog, asGzip, gzipped(gzipped(`{"api_key":"default","batch":[{}]}`))), badJSON, kept},
	{"an event called batch", post("/segment/v1/track", basic("default"), `{"batch":[7]}`), ok, kept},
	{"no event", segmentBatch(""), "400 empty_batch", kept},
	{"two requests at once", segmentBatch(`{"a":1}`) + amplitudeBatch(`{},7,{"time":1e99}`), ok + " | 200 accepted=1", kept},
	{"a chunked batch", chunked(segment, basic("default"), `{"batch":[{"chunked":1}]}`), ok, kept},
	{"a batch after a 100", request("POST "+segment, basic("default")+"Expect: 100-continue\r\nContent-Length: 15\r\n", `{"batch":[{} ]}`), "100 | " + ok, kept},
	{"a request in an event", hide("POST "+segment, basic("default")), badJSON, kept},

	{"no key", post(segment, "", `{"batch":[{}]}`), noKey, kept},
	{"an unknown key", post(segment, basic("nobody"), `{"batch":[{}]}`), noKey, kept},
	{"an unknown key, and 1 MiB announced", request("POST "+segment, basic("nobody")+"Content-Length: 1048576\r\n", x(9<<10)), noKey, closed},
	{"a wrong key and a right one", post(segment, basic("nobody"), `{"writeKey":"default","batch":[{}]}`), noKey, kept},
	{"a key with a NUL", post(segment, basic("default\x00"), `{"batch":[{}]}`), noKey, kept},
	{"a key in capitals", post(segment, basic("DEFAULT"), `{"batch":[{}]}`), noKey, kept},
	{"a key that is no base64", post(segment, "Authorization: Basic %%%\r\n", `{"batch":[{}]}`), noKey, kept},
	{"a key as a token", post(segment, bears("default"), `{"batch":[{}]}`), noKey, kept},
	{"a key that is a number", post(posthog, "", `{"api_key":7,"batch":[{}]}`), strangeKey, kept},
	{"a key that is an object", post(posthog, "", `{"api_key":{"default":"default"},"batch":[{}]}`), strangeKey, kept},
	{"a key that is a list", post(posthog, "", `{"api_key":["default"],"batch":[{}]}`), strangeKey, kept},
	{"a key of 1 MB", post(posthog, "", `{"api_key":"`+x(1_000_000)+`","batch":[{}]}`), strangeKey, kept},
	{"a key and then another", post(posthog, "", `{"api_key":"default","batch":[{}],"api_key":"nobody"}`), strangeKey, kept},
	{"a key with a line end", post(posthog, "", `{"api_key":"default\r\n","batch":[{}]}`), strangeKey, kept},
	{"Amplitude's wrong key", post(amplitude, "", `{"api_key":"nobody","events":[{}]}`), "400", kept},
	{"a form", form(`{"api_key":"default","event":"e"}`), ok, kept},
	{"a form of nothing", post(posthog, sdkForm, "data="), badJSON, kept},
	{"a form with half an escape", post(posthog, sdkForm, "data=%7"), badJSON, kept},
	{"a form in a form", form("data=e30="), badJSON, kept},
	{"PostHog's flags", post("/posthog/flags/?v=2", "", `{"api_key":"default"}`), "404 no_such_route", kept},
	{"a call that goes up", post("/segment/v1/../../v1/default", basic("default"), `{"batch":[{}]}`), badRequest, kept},
	{"a call with escapes", post("/segment/v1/%62atch", basic("default"), `{"batch":[{}]}`), badRequest, kept},
	{"GET of a batch", aimed("GET", segment), "405 method_not_allowed Allow=POST,OPTIONS", kept},
}

// aimed is a request without a body.
func aimed(method, path string) string { return request(method+" "+path, basic("default"), "") }

// locked are the same routes of a server of which every namespace has tokens and none a key.
var locked = []row{
	{"an SDK's batch", post(segment, basic("mine"), `{"batch":[{}]}`), noKey, kept},
	{"a token for a write key", post(segment, basic(mineCanary), `{"batch":[{}]}`), noKey, kept},
	{"a token to an SDK's route", post(segment, bears(mineCanary), `{"writeKey":"mine","batch":[{}]}`), noKey, kept},
	{"1 MiB of an SDK, announced", request("POST "+posthog, "Content-Length: 1048576\r\n", ""), strangeKey, closed},
	{"an SDK's body in chunks", request("POST "+posthog, "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), strangeKey, kept},
	{"an SDK's body, expected", request("POST "+amplitude, "Expect: 100-continue\r\nContent-Length: 20\r\n", ""), "400", closed},
	{"an SDK's bomb", post(segment, asGzip, bomb), noKey, closed},
}
