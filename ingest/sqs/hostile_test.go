package sqs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// hostileRow is a request that is wrong, and the answer to it.
type hostileRow struct {
	name   string
	action string // of JSON; "": a form
	body   string
	edit   func(*http.Request) // after the request was signed
	status int
	code   string // in the words of the older protocol; "": it succeeds
}

const at = `{"QueueUrl":"http://x/sqs/mail/q"`

// entries is a batch of n.
func entries(n int, entry string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(entry, i))
	}
	return at + `,"Entries":[` + strings.Join(all, ",") + `]}`
}

// attributes is a message with attributes.
func attributesBody(text string) string {
	return at + `,"MessageBody":"x","MessageAttributes":` + text + `}`
}

func attributes(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"a%d":{"DataType":"String","StringValue":"x"}`, i))
	}
	return strings.Join(all, ",")
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// signed signs a request anew.
func signed(id, secret string, body string, off time.Duration) func(*http.Request) {
	return func(r *http.Request) { sign(r, body, id, secret, time.Now().Add(off)) }
}

// replaced changes the Authorization header.
func replaced(old, new string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, new, 1))
	}
}

// of runs edits one after the other.
func of(edits ...func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) {
		for _, edit := range edits {
			edit(r)
		}
	}
}

func hostileRows(p *port) []hostileRow {
	ns := p.store.Namespace("mail")
	foreign := p.store.Namespace("orders").ID(0, "q", 1_700_000_000_000_000, "") + ".1"
	otherQueue := ns.ID(0, "other", 1_700_000_000_000_000, "") + ".1"
	yesterday := ns.ID(0, "q", time.Now().Add(-24*time.Hour).UnixMicro(), "") + ".1"
	receipt := func(handle string) string { return at + `,"ReceiptHandle":"` + handle + `"}` }
	visibility := func(handle, seconds string) string {
		return at + `,"ReceiptHandle":"` + handle + `","VisibilityTimeout":` + seconds + `}`
	}
	list := `{}`
	keyed := `{"QueueUrl":"http://x/sqs/keyed/q","MessageBody":"x"}`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(bytes.Repeat([]byte{' '}, 8<<20))
	_ = z.Close()
	text := func(s string) string { return at + `,"MessageBody":` + s + `}` }
	deep := strings.Repeat("[", 100_000)
	set := func(s string) string { return at + `,"Attributes":` + s + `}` }
	const none, bad, form = "", "InvalidParameterValue", ""
	const serial, noKey, noSignature = "SerializationException", "InvalidClientTokenId", "SignatureDoesNotMatch"
	const unsupported, noQueue = "AWS.SimpleQueueService.UnsupportedOperation", "AWS.SimpleQueueService.NonExistentQueue"
	const batch = "AWS.SimpleQueueService."
	return []hostileRow{
		// Who asks.
		{"no signature", "ListQueues", list, func(r *http.Request) { r.Header.Del("Authorization") }, 403, "MissingAuthenticationToken"},
		{"a bearer token", "ListQueues", list, header("Authorization", "Bearer "+token), 403, "MissingAuthenticationToken"},
		{"two signatures", "ListQueues", list, func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) }, 400, none},
		{"half a credential", "ListQueues", list, header("Authorization", "AWS4-HMAC-SHA256 Credential="+token), 403, "MissingAuthenticationToken"},
		{"another service", "ListQueues", list, replaced("/sqs/", "/s3/"), 403, "MissingAuthenticationToken"},
		{"no signed headers", "ListQueues", list, replaced("SignedHeaders=host;x-amz-date, ", ""), 403, "MissingAuthenticationToken"},
		{"another algorithm", "ListQueues", list, replaced("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), 403, "MissingAuthenticationToken"},
		{"an unknown id", "ListQueues", list, signed("nobody", "x", list, 0), 403, noKey},
		{"the name of a token", "ListQueues", list, signed("mail", "x", list, 0), 403, noKey},
		{"the name of a namespace with access keys", "ListQueues", list, signed("keyed", "x", list, 0), 403, noKey},
		{"a secret as an id", "ListQueues", list, signed(keySecret, keySecret, list, 0), 403, noKey},
		{"the name of an open namespace", "ListQueues", list, signed("open", "x", list, 0), 200, none},
		{"a token with any secret", "ListQueues", list, signed(token, "wrong", list, -time.Hour), 200, none},
		{"a token for another namespace", "SendMessage", keyed, nil, 403, "AccessDenied"},
		{"a token in another's path", form, "Action=SendMessage&MessageBody=x", func(r *http.Request) { r.URL.Path = "/sqs/orders/q" }, 403, "AccessDenied"},
		{"a key with its secret", "SendMessage", keyed, signed(keyID, keySecret, keyed, 0), 200, none},
		{"a wrong secret", "SendMessage", keyed, signed(keyID, "wrong", keyed, 0), 403, noSignature},
		{"an empty secret", "SendMessage", keyed, signed(keyID, "", keyed, 0), 403, noSignature},
		{"a signature of another body", "SendMessage", keyed, signed(keyID, keySecret, "{}", 0), 403, noSignature},
		{"a signature of another path", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), func(r *http.Request) { r.URL.Path = "/sqs/keyed/q" }), 403, noSignature},
		{"a query that is not signed", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), func(r *http.Request) { r.URL.RawQuery = "a=b" }), 403, noSignature},
		{"a query that is signed", "SendMessage", keyed, of(func(r *http.Request) { r.URL.RawQuery = "a=b%20c" }, signed(keyID, keySecret, keyed, 0)), 403, noSignature},
		{"a signature in capitals", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), func(r *http.Request) {
			head, tail, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
			r.Header.Set("Authorization", head+"Signature="+strings.ToUpper(tail))
		}), 403, "MissingAuthenticationToken"},
		{"an empty signature", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), replaced("Signature=", "Signature=,X=")), 403, "MissingAuthenticationToken"},
		{"a clock 14 minutes ahead", "SendMessage", keyed, signed(keyID, keySecret, keyed, 14*time.Minute), 200, none},
		{"a clock 16 minutes ahead", "SendMessage", keyed, signed(keyID, keySecret, keyed, 16*time.Minute), 403, noSignature},
		{"a clock 16 minutes behind", "SendMessage", keyed, signed(keyID, keySecret, keyed, -16*time.Minute), 403, noSignature},
		{"a replay with another date", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, -time.Hour), func(r *http.Request) {
			r.Header.Set("X-Amz-Date", time.Now().UTC().Format("20060102T150405Z"))
		}), 403, noSignature},
		{"no date", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), func(r *http.Request) { r.Header.Del("X-Amz-Date") }), 403, noSignature},
		{"a date that is none", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), header("X-Amz-Date", "now")), 403, noSignature},
		{"a date that is not signed", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), replaced("host;x-amz-date", "host")), 403, noSignature},
		{"another region", "SendMessage", keyed, of(signed(keyID, keySecret, keyed, 0), replaced(region, "us-east-1")), 403, noSignature},

		// What is asked.
		{"an action of AWS's alone", "StartMessageMoveTask", at + "}", nil, 400, unsupported},
		{"an action that is none", "DropTables", at + "}", nil, 400, unsupported},
		{"a form without an action", form, "Version=2012-11-05", nil, 400, unsupported},
		{"an empty form", form, "", nil, 400, unsupported},
		{"no queue", "SendMessage", `{"MessageBody":"x"}`, nil, 400, "MissingParameter"},
		{"a queue of no URL", "SendMessage", `{"QueueUrl":"%zz","MessageBody":"x"}`, nil, 400, "MissingParameter"},
		{"a queue of another path", "SendMessage", `{"QueueUrl":"http://x/queue/q","MessageBody":"x"}`, nil, 400, "MissingParameter"},
		{"a queue with a slash", "SendMessage", `{"QueueUrl":"http://x/sqs/mail/a/b","MessageBody":"x"}`, nil, 400, noQueue},
		{"a queue with a space", "CreateQueue", `{"QueueName":"a b"}`, nil, 400, noQueue},
		{"a queue of Spillway's", "CreateQueue", `{"QueueName":"_events"}`, nil, 400, noQueue},
		{"a queue of 256 characters", "CreateQueue", `{"QueueName":"` + strings.Repeat("q", 256) + `"}`, nil, 400, noQueue},
		{"a FIFO queue", "CreateQueue", `{"QueueName":"q.fifo"}`, nil, 400, unsupported},
		{"the URL of a FIFO queue", "SendMessage", `{"QueueUrl":"http://x/sqs/mail/q.fifo","MessageBody":"x"}`, nil, 400, unsupported},
		{"another account", "GetQueueUrl", `{"QueueName":"q","QueueOwnerAWSAccountId":"1"}`, nil, 400, unsupported},
		{"tags", "CreateQueue", `{"QueueName":"q","tags":{"a":"b"}}`, nil, 400, unsupported},
		{"a get", "ListQueues", list, func(r *http.Request) { r.Method, r.URL.Path = "GET", "/sqs/mail/q" }, 400, unsupported},
		{"an escaped path", form, "Action=PurgeQueue", func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/sqs/mail/q", "/sqs/mail/%71" }, 400, bad},

		// Bodies.
		{"no JSON", "ListQueues", "x", nil, 400, serial},
		{"a list", "ListQueues", "[]", nil, 400, serial},
		{"no body", "ListQueues", "", nil, 200, none},
		{"JSON that ends early", "ListQueues", `{"MaxResults":1`, nil, 400, serial},
		{"JSON that is 100,000 deep", "ListQueues", `{"a":` + deep, nil, 400, serial},
		{"JSON that is no UTF-8", "SendMessage", text("\"\xff\""), nil, 400, serial},
		{"a body of 4 MiB", "SendMessage", text(`"` + strings.Repeat("x", 4<<20) + `"`), nil, 413, batch + "BatchRequestTooLong"},
		{"a bomb", "ListQueues", zipped.String(), header("Content-Encoding", "gzip"), 415, bad},
		{"a form that is no UTF-8", form, "Action=SendMessage&MessageBody=%ff", nil, 400, serial},
		{"a form with half an escape", form, "Action=SendMessage&MessageBody=%f", nil, 400, serial},
		{"a form with an action twice", form, "Action=SendMessage&Action=PurgeQueue&MessageBody=x", nil, 400, serial},
		{"a form with a list and a text", form, "Action=SendMessage&A=1&A.1=2", nil, 400, serial},
		{"a form of 1,001 values", form, "Action=ListQueues" + strings.Repeat("&a", 1000), nil, 400, serial},
		{"a form of 2,000 dots", form, "Action=ListQueues&" + strings.Repeat("a.", 2000) + "=1", nil, 200, none},
		{"a form with everything that is escaped", form, "Action=SendMessage&MessageBody=%26%3C%3E%22%27%0D%0A%25%2B+%C3%A9", nil, 200, none},

		// Messages.
		{"no text", "SendMessage", at + "}", nil, 400, "MissingParameter"},
		{"an empty text", "SendMessage", text(`""`), nil, 400, "MissingParameter"},
		{"a number as a text", "SendMessage", text("5"), nil, 400, serial},
		{"a control character", "SendMessage", text(`"\u0001"`), nil, 400, "InvalidMessageContents"},
		{"U+FFFF", "SendMessage", text(`"\uffff"`), nil, 400, "InvalidMessageContents"},
		{"a text of 33 KiB", "SendMessage", text(`"` + strings.Repeat("x", 33<<10) + `"`), nil, 400, bad},
		{"a delay of 901 s", "SendMessage", at + `,"MessageBody":"x","DelaySeconds":901}`, nil, 400, bad},
		{"a delay of -1 s", "SendMessage", at + `,"MessageBody":"x","DelaySeconds":-1}`, nil, 400, bad},
		{"a delay of 1e2 s", "SendMessage", at + `,"MessageBody":"x","DelaySeconds":1e2}`, nil, 400, bad},
		{"a group", "SendMessage", at + `,"MessageBody":"x","MessageGroupId":"g"}`, nil, 400, unsupported},
		{"a batch of none", "SendMessageBatch", at + `,"Entries":[]}`, nil, 400, batch + "EmptyBatchRequest"},
		{"a batch without entries", "SendMessageBatch", at + `}`, nil, 400, batch + "EmptyBatchRequest"},
		{"a batch of 11", "SendMessageBatch", entries(11, `{"Id":"%d","MessageBody":"x"}`), nil, 400, batch + "TooManyEntriesInBatchRequest"},
		{"a batch of 100,000", "SendMessageBatch", entries(100_000, `{"Id":"%d"}`), nil, 400, serial},
		{"an id twice", "SendMessageBatch", entries(2, `{"Id":"a","MessageBody":"%d"}`), nil, 400, batch + "BatchEntryIdsNotDistinct"},
		{"an id with a dot", "SendMessageBatch", entries(1, `{"Id":"a.%d","MessageBody":"x"}`), nil, 400, batch + "InvalidBatchEntryId"},
		{"an id of 81 characters", "DeleteMessageBatch", entries(1, `{"Id":"`+strings.Repeat("a", 80)+`%d"}`), nil, 400, batch + "InvalidBatchEntryId"},
		{"entries that are texts", "SendMessageBatch", at + `,"Entries":["a"]}`, nil, 400, serial},
		{"entries that are an object", "SendMessageBatch", at + `,"Entries":{}}`, nil, 400, serial},
		{"a batch with one wrong entry", "SendMessageBatch", at + `,"Entries":[{"Id":"a","MessageBody":"x"},{"Id":"b"}]}`, nil, 200, none},
		{"11 attributes", "SendMessage", attributesBody("{" + attributes(11) + "}"), nil, 400, bad},
		{"50,000 attributes", "SendMessage", attributesBody("{" + attributes(50_000) + "}"), nil, 400, serial},
		{"attributes that are a list", "SendMessage", attributesBody("[]"), nil, 400, serial},
		{"an attribute that is a text", "SendMessage", attributesBody(`{"a":"x"}`), nil, 400, serial},
		{"an attribute of Spillway's", "SendMessage", attributesBody(`{"sqs":{"DataType":"String","StringValue":"x"}}`), nil, 400, bad},
		{"an attribute of AWS's", "SendMessage", attributesBody(`{"AWS.x":{"DataType":"String","StringValue":"x"}}`), nil, 400, bad},
		{"an attribute with a slash", "SendMessage", attributesBody(`{"a/b":{"DataType":"String","StringValue":"x"}}`), nil, 400, bad},
		{"an attribute without a type", "SendMessage", attributesBody(`{"a":{"StringValue":"x"}}`), nil, 400, bad},
		{"an attribute of another type", "SendMessage", attributesBody(`{"a":{"DataType":"Date","StringValue":"x"}}`), nil, 400, bad},
		{"an attribute without a value", "SendMessage", attributesBody(`{"a":{"DataType":"String","StringValue":""}}`), nil, 400, bad},
		{"a number that is none", "SendMessage", attributesBody(`{"a":{"DataType":"Number","StringValue":"x"}}`), nil, 400, bad},
		{"bytes that are no base64", "SendMessage", attributesBody(`{"a":{"DataType":"Binary","BinaryValue":"!"}}`), nil, 400, serial},
		{"attributes of the system", "SendMessage", at + `,"MessageBody":"x","MessageSystemAttributes":{}}`, nil, 400, unsupported},

		// Receiving, and what follows.
		{"none at most", "ReceiveMessage", at + `,"MaxNumberOfMessages":0}`, nil, 400, bad},
		{"11 at most", "ReceiveMessage", at + `,"MaxNumberOfMessages":11}`, nil, 400, bad},
		{"a wait of 21 s", "ReceiveMessage", at + `,"WaitTimeSeconds":21}`, nil, 400, bad},
		{"invisible for 12 h and more", "ReceiveMessage", at + `,"VisibilityTimeout":43201}`, nil, 400, bad},
		{"names that are numbers", "ReceiveMessage", at + `,"AttributeNames":[1]}`, nil, 400, serial},
		{"no handle", "DeleteMessage", at + "}", nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of nothing", "DeleteMessage", receipt("AQEB=="), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle without an attempt", "DeleteMessage", receipt(strings.TrimSuffix(yesterday, ".1")), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of attempt 0", "DeleteMessage", receipt(strings.TrimSuffix(yesterday, "1") + "0"), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of attempt 1,000,000,000", "DeleteMessage", receipt(yesterday + "000000000"), nil, 200, none},
		{"a handle of attempt 2^63", "DeleteMessage", receipt(yesterday + strings.Repeat("0", 30)), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of another queue", "DeleteMessage", receipt(otherQueue), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of another namespace", "DeleteMessage", receipt(foreign), nil, 400, "ReceiptHandleIsInvalid"},
		{"a handle of yesterday", "DeleteMessage", receipt(yesterday), nil, 200, none},
		{"visible by a handle of yesterday", "ChangeMessageVisibility", visibility(yesterday, "5"), nil, 400, batch + "MessageNotInflight"},
		{"visible by a handle of another queue", "ChangeMessageVisibility", visibility(otherQueue, "5"), nil, 400, "ReceiptHandleIsInvalid"},
		{"visible without a time", "ChangeMessageVisibility", receipt(yesterday), nil, 400, "MissingParameter"},
		{"visible after 12 h and more", "ChangeMessageVisibility", visibility(yesterday, "43201"), nil, 400, bad},

		// Queues.
		{"a retention", "SetQueueAttributes", set(`{"MessageRetentionPeriod":"60"}`), nil, 400, unsupported},
		{"attributes of a queue that are a list", "SetQueueAttributes", set(`[]`), nil, 400, serial},
		{"visible at once", "SetQueueAttributes", set(`{"VisibilityTimeout":"0"}`), nil, 400, "InvalidAttributeValue"},
		{"a delay of a queue that is a text", "SetQueueAttributes", set(`{"DelaySeconds":"x"}`), nil, 400, "InvalidAttributeValue"},
		{"a RedrivePolicy that is a number", "SetQueueAttributes", set(`{"RedrivePolicy":"5"}`), nil, 400, "InvalidAttributeValue"},
		{"a RedrivePolicy of 0", "SetQueueAttributes", set(`{"RedrivePolicy":"{\"maxReceiveCount\":0}"}`), nil, 400, "InvalidAttributeValue"},
		{"names of attributes that are a text", "GetQueueAttributes", at + `,"AttributeNames":"All"}`, nil, 400, serial},
	}
}

func TestHostileRequestsAreAnsweredInAWSsForm(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	rows := hostileRows(p)
	if len(rows) < 80 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		path := "/"
		if row.action == "" {
			path = "/sqs/mail/q"
		}
		req := p.request(path, row.action, row.body)
		if row.edit != nil {
			row.edit(req)
		}
		got := p.do(req)
		if got.status != row.status || got.code() != row.code {
			t.Errorf("%s: got %d %s, want %d %s: %.300s", row.name, got.status, got.code(), row.status, row.code, got.body)
		}
		if json := strings.HasPrefix(got.body, "{"); json != (row.action != "") {
			t.Errorf("%s: the form of another protocol: %.300s", row.name, got.body)
		}
	}
	if r := p.do(p.request("/", "ListQueues", "{}")); r.status != 200 {
		t.Errorf("afterwards: %+v", r)
	}
}

// A namespace is no open door without tokens and access keys, unless that is asked for.
func TestTheNameOfANamespaceOpensNothing(t *testing.T) {
	t.Parallel()
	p := start(t, func(c *Config) { c.OpenNames = false })
	req := p.request("/", "ListQueues", "{}")
	sign(req, "{}", "open", "x", time.Now())
	if r := p.do(req); r.status != 403 || r.code() != "InvalidClientTokenId" {
		t.Errorf("got %+v", r)
	}
}

// BenchmarkBatches measures messages sent, received and deleted by SQS's actions beside jobs by the
// native routes, in batches of 10, by turns and by one client over sockets.
func BenchmarkBatches(b *testing.B) {
	p := start(b, nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var took time.Duration // of requests, without what the client does before and after
	do := func(req *http.Request) string {
		began := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if took += time.Since(began); err != nil || resp.StatusCode != 200 {
			b.Fatal(resp.Status, string(text), err)
		}
		return string(text)
	}
	native := func(path, kind, body string) string {
		req, err := http.NewRequest("POST", "http://"+p.addr+"/v1/mail/native"+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", kind)
		return do(req)
	}
	payload := strings.Repeat("x", 200)
	entry := `{"Id":"%d","MessageBody":"` + payload + `","MessageAttributes":{"n":{"DataType":"Number","StringValue":"5"}}}`
	var all [2]time.Duration
	b.ResetTimer()
	for range b.N {
		took = 0
		do(p.request("/", "SendMessageBatch", entries(10, entry)))
		got := reply{body: do(p.request("/", "ReceiveMessage", at+`,"MaxNumberOfMessages":10,"MessageAttributeNames":["All"],"AttributeNames":["All"]}`))}
		deletes := make([]string, 10)
		for i := range deletes {
			deletes[i] = fmt.Sprintf(`{"Id":"%d","ReceiptHandle":"%s"}`, i, got.get(fmt.Sprintf("Messages.%d.ReceiptHandle", i)))
		}
		deleted := reply{body: do(p.request("/", "DeleteMessageBatch", at+`,"Entries":[`+strings.Join(deletes, ",")+`]}`))}
		if deleted.get("Successful.#") != "10" {
			b.Fatal(deleted.body)
		}
		all[0] += took
		took = 0
		native("", "application/x-ndjson", strings.Repeat(payload+"\n", 10))
		got = reply{body: native("/claim?count=10", "", "")}
		var lines strings.Builder
		for i := range 10 {
			fmt.Fprintf(&lines, "{\"id\":%q,\"attempt\":1,\"do\":\"ack\"}\n", got.get(fmt.Sprintf("jobs.%d.id", i)))
		}
		native("/settle", "application/x-ndjson", lines.String())
		all[1] += took
	}
	for i, name := range []string{"sqs-jobs/s", "native-jobs/s"} {
		b.ReportMetric(float64(10*b.N)/all[i].Seconds(), name)
	}
	b.ReportMetric(all[1].Seconds()/all[0].Seconds(), "ratio")
}
