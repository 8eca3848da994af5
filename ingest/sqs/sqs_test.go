package sqs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

type noBuffers struct{}

func (noBuffers) Namespace(string) *partition.Namespace       { return nil }
func (noBuffers) Zones() int                                  { return 1 }
func (noBuffers) NowOf(*partition.Namespace) (int64, bool)    { return 0, true }
func (noBuffers) Produce(context.Context, []*partition.Group) {}
func (noBuffers) Stats(context.Context, *partition.Namespace, string) (s partition.Stats, err error) {
	return s, partition.ErrNoPartition
}

const (
	token      = "token-of-mail"
	otherToken = "token-of-orders"
	keyID      = "AKIAKEYED"
	keySecret  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	region     = "eu-central-1"
)

// port is a data port on a redis-server. Its namespaces are mail and orders, each with a token,
// keyed, with an access key, and open, with neither.
type port struct {
	t       testing.TB
	addr    string
	store   *job.Store
	engine  *jobs.Engine
	control *control.Control
	redis   *redistest.Server
}

func start(t testing.TB, edit func(*Config)) *port {
	t.Helper()
	redis := redistest.Start(t)
	b := backendtest.Open(t, backend.Config{URL: redis.URL()})
	tokens := map[string][]ingest.Token{}
	file := control.File{Volatile: []string{control.DefaultPool}}
	policies := map[string]job.Policy{}
	for name, text := range map[string]string{"mail": token, "orders": otherToken, "keyed": keySecret, "open": ""} {
		policies[name], tokens[name] = job.DefaultPolicy(), nil
		file.Namespaces = append(file.Namespaces, control.Namespace{Name: name, Pool: control.DefaultPool, Policy: job.DefaultPolicy()})
		if text != "" {
			tokens[name] = []ingest.Token{{Hash: sha256.Sum256([]byte(text)), Name: name}}
		}
	}
	p := &port{t: t, redis: redis}
	var err error
	if p.store, err = job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: policies}, b, prometheus.NewRegistry(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.control = control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	p.control.Use(file, control.Pools{control.DefaultPool: b})
	p.control.Subscribe(func(s *control.Snapshot) {
		for _, n := range s.Namespaces() {
			policies[n.Name] = n.Policy
		}
		if err := p.store.SetNamespaces(context.Background(), policies); err != nil {
			t.Error(err)
		}
	})
	promoter := job.NewPromoter(p.store)
	if p.engine, err = jobs.New(jobs.DefaultConfig(), p.store, prometheus.NewRegistry(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{promoter, p.engine} {
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.Background()) })
	}
	cfg := Config{Engines: []*jobs.Engine{p.engine}, AccessKeys: map[string]Key{keyID: {"keyed", keySecret}}, OpenNames: true, Control: p.control}
	if edit != nil {
		edit(&cfg)
	}
	in := ingest.DefaultConfig()
	in.Tokens = tokens
	in.Mounts = []ingest.Mount{NewAPI(cfg).Mount(), p.engine.Mount()}
	server, err := ingest.New(in, noBuffers{}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	server.SetListener(ln)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return p
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// code is the error that an answer says, in the words of the older protocol.
func (r reply) code() string {
	if query := r.header.Get(headerQueryError); query != "" {
		code, _, _ := strings.Cut(query, ";")
		return code
	}
	_, rest, _ := strings.Cut(r.body, "<Code>")
	code, _, _ := strings.Cut(rest, "</Code>")
	return code
}

func (r reply) get(path string) string { return gjson.Get(r.body, path).String() }

// sign signs a request as AWS's SDKs do.
func sign(req *http.Request, body, id, secret string, at time.Time) {
	date := at.UTC().Format("20060102T150405Z")
	req.Header.Set("X-Amz-Date", date)
	scope := date[:8] + "/" + region + "/sqs/aws4_request"
	sum := sha256.Sum256([]byte(body))
	canonical := fmt.Sprintf("%s\n%s\n%s\nhost:%s\nx-amz-date:%s\n\nhost;x-amz-date\n%x", req.Method, req.URL.Path, req.URL.RawQuery, req.URL.Host, date, sum)
	sum = sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secret)
	for _, part := range []string{date[:8], region, "sqs", "aws4_request", fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", date, scope, sum)} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=host;x-amz-date, Signature=%s", id, scope, hex.EncodeToString(key)))
}

// request makes a request with the token of mail. An action of JSON has no '='.
func (p *port) request(path, action, body string) *http.Request {
	req, err := http.NewRequest("POST", "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if action != "" {
		req.Header.Set(headerTarget, "AmazonSQS."+action)
		req.Header.Set("Content-Type", jsonType)
	} else {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	sign(req, body, token, "any", time.Now())
	return req
}

func (p *port) do(req *http.Request) reply {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// json sends an action to queue q; body is what follows QueueUrl.
func (p *port) json(action, body string) reply {
	p.t.Helper()
	return p.do(p.request("/", action, `{"QueueUrl":"http://any.host/sqs/mail/q"`+body+`}`))
}

// form sends an action to queue q.
func (p *port) form(values ...string) reply {
	p.t.Helper()
	form := url.Values{"Version": {"2012-11-05"}}
	for i := 0; i < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	return p.do(p.request("/sqs/mail/q", "", form.Encode()))
}

func TestAMessageGoesThroughTheJSONProtocol(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	sent := p.json("SendMessage", `,"MessageBody":"a <b> \"c\" \r\n é\u2028","MessageAttributes":{"n":{"DataType":"Number","StringValue":"5"},"bin":{"DataType":"Binary.x","BinaryValue":"AP8="},"s":{"DataType":"String","StringValue":"<&>"}}`)
	const attributesSum = "0a069fc8699c256db74f77ccd45b9bda"
	if sent.status != 200 || sent.get("MD5OfMessageBody") != sum([]byte("a <b> \"c\" \r\n é\u2028")) || sent.get("MD5OfMessageAttributes") != attributesSum {
		t.Fatalf("send: %+v", sent)
	}
	got := p.json("ReceiveMessage", `,"WaitTimeSeconds":20,"MessageAttributeNames":["All"],"AttributeNames":["All"]`)
	m := gjson.Get(got.body, "Messages.0")
	if m.Get("Body").Str != "a <b> \"c\" \r\n é\u2028" || m.Get("MD5OfBody").Str != sent.get("MD5OfMessageBody") || m.Get("MessageId").Str != sent.get("MessageId") ||
		m.Get("MD5OfMessageAttributes").Str != sent.get("MD5OfMessageAttributes") || m.Get("Attributes.ApproximateReceiveCount").Str != "1" ||
		m.Get("MessageAttributes.n.StringValue").Str != "5" || m.Get("MessageAttributes.n.DataType").Str != "Number" ||
		m.Get("MessageAttributes.bin.BinaryValue").Str != "AP8=" || m.Get("MessageAttributes.bin.DataType").Str != "Binary.x" || m.Get("MessageAttributes.s.StringValue").Str != "<&>" {
		t.Fatalf("receive: %s", got.body)
	}
	if empty := p.json("ReceiveMessage", ""); empty.status != 200 || empty.body != "{}" {
		t.Errorf("a message in flight: %+v", empty)
	}
	handle := m.Get("ReceiptHandle").Str
	if r := p.json("ChangeMessageVisibility", `,"VisibilityTimeout":0,"ReceiptHandle":"`+handle+`"`); r.status != 200 {
		t.Fatalf("visibility 0: %+v", r)
	}
	again := p.json("ReceiveMessage", `,"WaitTimeSeconds":20,"MessageAttributeNames":["b*","s"],"MessageSystemAttributeNames":["ApproximateReceiveCount"]`)
	if second := gjson.Get(again.body, "Messages.0"); second.Get("Attributes").Raw != `{"ApproximateReceiveCount":"2"}` || second.Get("MessageAttributes.@keys").Raw != `["s"]` {
		t.Fatalf("receive again: %s", again.body)
	}
	if r := p.json("ChangeMessageVisibility", `,"VisibilityTimeout":60,"ReceiptHandle":"`+handle+`"`); r.status != 400 || r.code() != "AWS.SimpleQueueService.MessageNotInflight" {
		t.Errorf("visibility by the handle before: %+v", r)
	}
	for range 2 { // a repeat succeeds
		if r := p.json("DeleteMessage", `,"ReceiptHandle":"`+gjson.Get(again.body, "Messages.0.ReceiptHandle").Str+`"`); r.status != 200 || r.body != "{}" {
			t.Errorf("delete: %+v", r)
		}
	}
	if l, err := p.store.Ledger(t.Context(), p.store.Namespace("mail")); err != nil || l.Published != 1 || l.Acked != 1 {
		t.Errorf("ledger %+v, %v", l, err)
	}
}

func TestABatchGoesThroughTheFormProtocol(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	sent := p.form("Action", "SendMessageBatch",
		"SendMessageBatchRequestEntry.1.Id", "a", "SendMessageBatchRequestEntry.1.MessageBody", "x&y<z>\r\n\"é\"",
		"SendMessageBatchRequestEntry.1.MessageAttribute.1.Name", "k", "SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType", "String",
		"SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue", "v",
		"SendMessageBatchRequestEntry.2.Id", "b", "SendMessageBatchRequestEntry.2.MessageBody", "later", "SendMessageBatchRequestEntry.2.DelaySeconds", "900",
		"SendMessageBatchRequestEntry.10.Id", "c", "SendMessageBatchRequestEntry.10.MessageBody", "bad \x01")
	for _, part := range []string{"<SendMessageBatchResponse xmlns=", "<SendMessageBatchResultEntry><Id>a</Id><MessageId>", "<MD5OfMessageAttributes>",
		"<BatchResultErrorEntry><Id>c</Id><Code>InvalidMessageContents</Code>", "<SenderFault>true</SenderFault>", "<ResponseMetadata><RequestId>"} {
		if !strings.Contains(sent.body, part) {
			t.Fatalf("send lacks %s: %s", part, sent.body)
		}
	}
	got := p.form("Action", "ReceiveMessage", "MaxNumberOfMessages", "10", "WaitTimeSeconds", "20", "MessageAttributeName.1", "All", "AttributeName.1", "SentTimestamp")
	for _, part := range []string{"<Message><MessageId>", "<Body>x&amp;y&lt;z&gt;&#xD;&#xA;&#34;é&#34;</Body>", "<Attribute><Name>SentTimestamp</Name><Value>",
		"<MessageAttribute><Name>k</Name><Value><DataType>String</DataType><StringValue>v</StringValue></Value></MessageAttribute>"} {
		if !strings.Contains(got.body, part) {
			t.Fatalf("receive lacks %s: %s", part, got.body)
		}
	}
	_, rest, _ := strings.Cut(got.body, "<ReceiptHandle>")
	handle, _, _ := strings.Cut(rest, "<")
	if r := p.form("Action", "ChangeMessageVisibilityBatch", "ChangeMessageVisibilityBatchRequestEntry.1.Id", "a", "ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle", handle,
		"ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout", "60"); r.status != 200 || !strings.Contains(r.body, "ResultEntry><Id>a</Id>") {
		t.Errorf("visibility: %+v", r)
	}
	if r := p.form("Action", "DeleteMessageBatch", "DeleteMessageBatchRequestEntry.1.Id", "a", "DeleteMessageBatchRequestEntry.1.ReceiptHandle", handle); r.status != 200 ||
		!strings.Contains(r.body, "<DeleteMessageBatchResultEntry><Id>a</Id></DeleteMessageBatchResultEntry>") {
		t.Errorf("delete: %+v", r)
	}
	attributes := p.form("Action", "GetQueueAttributes", "AttributeName.1", "All")
	for _, part := range []string{"<Name>ApproximateNumberOfMessagesDelayed</Name><Value>1</Value>", "<Name>VisibilityTimeout</Name><Value>30</Value>", "<Value>arn:aws:sqs:eu-central-1:mail:q</Value>"} {
		if !strings.Contains(attributes.body, part) {
			t.Errorf("attributes lack %s: %s", part, attributes.body)
		}
	}
	if r := p.form("Action", "PurgeQueue"); r.status != 200 {
		t.Errorf("purge: %+v", r)
	}
	if r := p.form("Action", "ListQueues"); strings.Contains(r.body, "/sqs/mail/q<") {
		t.Errorf("the queue still has jobs: %s", r.body)
	}
}

func TestWhatIsTooMuchToTellApartIsInFlight(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	if r := p.json("SendMessage", `,"MessageBody":"x"`); r.status != 200 {
		t.Fatalf("send: %+v", r)
	}
	if r := p.json("ReceiveMessage", ""); r.status != 200 {
		t.Fatalf("receive: %+v", r)
	}
	c := p.redis.Client()
	keys, err := c.Keys(t.Context(), "sw:{mail*}:lease").Result()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	for _, kind := range []string{"lease", "delay"} {
		add := []any{"zadd", strings.TrimSuffix(keys[0], "lease") + kind}
		for i := range 30_000 {
			add = append(add, 9e12, fmt.Sprint(i, " other"))
		}
		if err := c.Do(t.Context(), add...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := p.json("GetQueueAttributes", `,"AttributeNames":["ApproximateNumberOfMessagesNotVisible","ApproximateNumberOfMessagesDelayed"]`)
	if want := `{"Attributes":{"ApproximateNumberOfMessagesDelayed":"0","ApproximateNumberOfMessagesNotVisible":"1"}}`; got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
}

func TestAttributesOfAQueueAreItsRule(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	ctx := t.Context()
	rate := control.Rule{Namespace: "mail", CreatedBy: "ops"}
	rate.Match = "q"
	if err := rate.Rate.UnmarshalText([]byte("50/s")); err != nil {
		t.Fatal(err)
	}
	if err := p.control.PutRule(ctx, rate); err != nil {
		t.Fatal(err)
	}
	created := p.do(p.request("/", "CreateQueue", `{"QueueName":"q","Attributes":{"VisibilityTimeout":"120","DelaySeconds":"5","RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:x:y:z\",\"maxReceiveCount\":\"4\"}"}}`))
	if created.status != 200 || created.get("QueueUrl") != "http://"+p.addr+"/sqs/mail/q" {
		t.Fatalf("create: %+v", created)
	}
	rules := p.control.Snapshot().Rules("mail")
	if len(rules) != 2 || rules[0].Rate.String() != "50/s" || rules[0].CreatedBy != "ops" || !rules[1].Client || rules[1].CreatedBy != "mail" ||
		time.Duration(rules[1].TTR) != 2*time.Minute || time.Duration(rules[1].Delay) != 5*time.Second || rules[1].Tries != 4 {
		t.Fatalf("rules %+v", rules)
	}
	version := p.control.Snapshot().Version
	if r := p.json("SetQueueAttributes", `,"Attributes":{"VisibilityTimeout":"120"}`); r.status != 200 || p.control.Snapshot().Version != version {
		t.Errorf("the same again: %+v, version %d after %d", r, p.control.Snapshot().Version, version)
	}
	got := p.json("GetQueueAttributes", `,"AttributeNames":["VisibilityTimeout","DelaySeconds","RedrivePolicy"]`)
	if want := `{"Attributes":{"DelaySeconds":"5","RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:eu-central-1:mail:q\",\"maxReceiveCount\":4}","VisibilityTimeout":"120"}}`; got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
	if r := p.json("SendMessage", `,"MessageBody":"x"`); r.status != 200 {
		t.Fatalf("send: %+v", r)
	}
	if n, err := p.store.Counts(ctx, p.store.Namespace("mail"), "q"); err != nil || n.Delayed != 1 {
		t.Errorf("counts %+v, %v", n, err)
	}
	if r := p.json("SendMessage", `,"MessageBody":"now","DelaySeconds":0`); r.status != 200 {
		t.Fatalf("send: %+v", r)
	}
	j, err := p.store.Peek(ctx, p.store.Namespace("mail"), "q")
	if err != nil || string(j.Payload) != "now" || j.Tries != 4 {
		t.Errorf("peek %+v, %v", j, err)
	}
	if r := p.json("SetQueueAttributes", `,"Attributes":{"RedrivePolicy":"","DelaySeconds":"0"}`); r.status != 200 {
		t.Errorf("set: %+v", r)
	}
	if r := p.control.Snapshot().Rules("mail")[1]; r.Tries != 0 || r.Delay != 0 || time.Duration(r.TTR) != 2*time.Minute {
		t.Errorf("rule %+v", r)
	}
	for n := range 100 { // a client that changes rules without end makes every process read all of them
		r := p.json("SetQueueAttributes", fmt.Sprintf(`,"Attributes":{"VisibilityTimeout":"%d"}`, 119-n%2))
		if throttled := strings.Contains(r.body, "RequestThrottled"); throttled || n == 99 {
			if !throttled || n < 10 {
				t.Errorf("change %d: %+v", n, r)
			}
			break
		}
	}
}

func TestAttributesFillWhatNoRuleSets(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	rule := control.Rule{Namespace: "mail", CreatedBy: "ops", Rule: job.Rule{Match: "*", TTR: job.Span(time.Hour), Tries: 7}}
	if err := p.control.PutRule(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	if r := p.json("SetQueueAttributes", `,"Attributes":{"VisibilityTimeout":"1","DelaySeconds":"5","RedrivePolicy":"{\"maxReceiveCount\":1}"}`); r.status != 200 {
		t.Fatalf("set: %+v", r)
	}
	got := p.json("GetQueueAttributes", `,"AttributeNames":["VisibilityTimeout","DelaySeconds","RedrivePolicy"]`)
	if want := `{"Attributes":{"DelaySeconds":"5","RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:eu-central-1:mail:q\",\"maxReceiveCount\":7}","VisibilityTimeout":"3600"}}`; got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
	for _, body := range []string{`"DelaySeconds":"901"`, `"VisibilityTimeout":"43201"`, `"RedrivePolicy":"{\"maxReceiveCount\":1001}"`} {
		if r := p.json("SetQueueAttributes", `,"Attributes":{`+body+`}`); r.code() != "InvalidAttributeValue" {
			t.Errorf("%s: %+v", body, r)
		}
	}
}

func TestARedrivePolicyHoldsForMessagesThatAreThere(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	p.json("SendMessage", `,"MessageBody":"poison"`)
	for range 2 {
		if got := p.json("ReceiveMessage", `,"WaitTimeSeconds":20,"VisibilityTimeout":0`); got.get("Messages.#") != "1" {
			t.Fatalf("receive: %s", got.body)
		}
	}
	if r := p.json("SetQueueAttributes", `,"Attributes":{"RedrivePolicy":"{\"maxReceiveCount\":2}"}`); r.status != 200 {
		t.Fatalf("set: %+v", r)
	}
	p.json("SendMessage", `,"MessageBody":"good"`)
	if got := p.json("ReceiveMessage", `,"WaitTimeSeconds":20`); got.get("Messages.0.Body") != "good" {
		t.Errorf("got %s", got.body)
	}
	if n, err := p.store.Counts(t.Context(), p.store.Namespace("mail"), "q"); err != nil || n.Dead != 1 || n.Leased != 1 {
		t.Errorf("counts %+v, %v", n, err)
	}
}

func TestADeletedQueueIsGoneUntilItIsMadeAgain(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	create := func(attributes string) reply {
		return p.do(p.request("/", "CreateQueue", `{"QueueName":"q","Attributes":{`+attributes+`}}`))
	}
	if r := create(`"VisibilityTimeout":"120"`); r.status != 200 {
		t.Fatalf("create: %+v", r)
	}
	p.json("SendMessage", `,"MessageBody":"x"`)
	p.json("SendMessage", `,"MessageBody":"later","DelaySeconds":900`)
	p.json("ReceiveMessage", "")
	for range 2 { // a repeat succeeds
		if r := p.json("DeleteQueue", ""); r.status != 200 || r.body != "{}" {
			t.Fatalf("delete: %+v", r)
		}
	}
	if l, err := p.store.Ledger(t.Context(), p.store.Namespace("mail")); err != nil || l.Ready+l.Delayed+l.Leased != 0 {
		t.Errorf("ledger %+v, %v", l, err)
	}
	url := p.do(p.request("/", "GetQueueUrl", `{"QueueName":"q"}`))
	if url.status != 400 || url.get("__type") != "com.amazonaws.sqs#QueueDoesNotExist" || url.code() != "AWS.SimpleQueueService.NonExistentQueue" {
		t.Errorf("url: %+v", url)
	}
	if r := p.form("Action", "SendMessage", "MessageBody", "x"); r.code() != "AWS.SimpleQueueService.NonExistentQueue" {
		t.Errorf("send: %+v", r)
	}
	if r := p.do(p.request("/", "ListQueues", "{}")); r.body != `{"QueueUrls":[]}` {
		t.Errorf("list: %s", r.body)
	}
	if r := create(""); r.status != 200 {
		t.Fatalf("create: %+v", r)
	}
	got := p.json("GetQueueAttributes", `,"AttributeNames":["VisibilityTimeout","ApproximateNumberOfMessages"]`)
	if want := `{"Attributes":{"ApproximateNumberOfMessages":"0","VisibilityTimeout":"30"}}`; got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
}

func TestAQueueIsNotMadeWithOtherAttributes(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	create := func(attributes string) reply {
		return p.do(p.request("/", "CreateQueue", `{"QueueName":"q","Attributes":{`+attributes+`}}`))
	}
	for _, same := range []string{`"VisibilityTimeout":"120"`, `"VisibilityTimeout":"120"`, `"DelaySeconds":"0"`, ""} {
		if r := create(same); r.status != 200 {
			t.Errorf("%s: %+v", same, r)
		}
	}
	for _, other := range []string{`"VisibilityTimeout":"60"`, `"VisibilityTimeout":"120","DelaySeconds":"1"`} {
		if r := create(other); r.status != 400 || r.code() != "QueueAlreadyExists" || r.get("__type") != "com.amazonaws.sqs#QueueNameExists" {
			t.Errorf("%s: %+v", other, r)
		}
	}
	if r := p.do(p.request("/", "ListQueues", "{}")); r.get("QueueUrls.#") != "1" {
		t.Errorf("list: %s", r.body)
	}
}

func TestAnEmptyBatchHasAWSsCode(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	for _, action := range []string{"SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
		for _, r := range []reply{p.json(action, `,"Entries":[]`), p.json(action, ""), p.form("Action", action)} {
			if r.status != 400 || r.code() != "AWS.SimpleQueueService.EmptyBatchRequest" {
				t.Errorf("%s: %+v", action, r)
			}
		}
	}
}

// Queues are named by clients, and operators need rules too.
func TestAttributesLeaveRulesToOperators(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	put := func(queue string) {
		r := control.Rule{Namespace: "mail", CreatedBy: "ops", Rule: job.Rule{Match: job.Pattern(queue), Tries: 2}}
		if err := p.control.PutRule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range job.MaxRules / 2 {
		put(fmt.Sprint("q", n))
	}
	if r := p.do(p.request("/", "CreateQueue", `{"QueueName":"q","Attributes":{"VisibilityTimeout":"120"}}`)); r.status != 400 || !strings.Contains(r.body, "OverLimit") {
		t.Errorf("got %+v", r)
	}
	if r := p.json("SetQueueAttributes", `,"Attributes":{"VisibilityTimeout":"120"}`); !strings.Contains(r.body, "OverLimit") {
		t.Errorf("got %+v", r)
	}
	put("*")
}

func TestAMessageWithoutRedrivePolicyIsReceivedAgainAndAgain(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	p.json("SendMessage", `,"MessageBody":"x"`)
	for i := range 5 {
		got := p.json("ReceiveMessage", `,"WaitTimeSeconds":20,"VisibilityTimeout":0,"AttributeNames":["ApproximateReceiveCount"]`)
		if n := got.get("Messages.0.Attributes.ApproximateReceiveCount"); n != fmt.Sprint(i+1) {
			t.Fatalf("receive %d: %s", i, got.body)
		}
	}
}

func TestALongPollIsWokenAndListsQueues(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	got := make(chan reply, 1)
	go func() { got <- p.json("ReceiveMessage", `,"WaitTimeSeconds":20`) }()
	for _, body := range []string{`{"QueueName":"q2"}`, `{"QueueName":"q"}`} {
		if r := p.do(p.request("/", "GetQueueUrl", body)); r.status != 200 {
			t.Fatalf("url: %+v", r)
		}
	}
	p.json("SendMessageBatch", `,"Entries":[{"Id":"1","MessageBody":"x"},{"Id":"2","MessageBody":"y"}]`)
	if r := <-got; r.get("Messages.#") != "1" { // without the wake it would end empty
		t.Errorf("got %s", r.body)
	}
	if r := p.do(p.request("/", "ListQueues", `{"QueueNamePrefix":"q"}`)); r.body != `{"QueueUrls":["http://`+p.addr+`/sqs/mail/q"]}` {
		t.Errorf("list: %s", r.body)
	}
}

func TestWhatAnotherAPIPublishedIsReceived(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	ns := p.store.Namespace("mail")
	for _, m := range []job.Message{{Payload: []byte("\xff\x00")}, {Payload: []byte("plain"), Attributes: []byte(`{"quo\"te":"v\u0001"}`)}} {
		x := &job.Publish{Namespace: ns, Queue: "q", Tries: 1, Messages: []job.Message{m}}
		if p.engine.Publish(x); x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	got := p.json("ReceiveMessage", `,"MaxNumberOfMessages":10,"MessageAttributeNames":[".*"]`)
	if !json.Valid([]byte(got.body)) || got.get("Messages.0.Body") != "/wA=" || got.get("Messages.1.Body") != "plain" || got.get("Messages.1.MessageAttributes.@keys.0") != `quo"te` {
		t.Errorf("got %s", got.body)
	}
}

// The sums are those of a reading of AWS's description in another language.
func TestTheSumsAreThoseOfAWS(t *testing.T) {
	t.Parallel()
	if got := sum([]byte("This is a test message")); got != "fafb00f5732ab283681e124bf8747ed1" {
		t.Errorf("body: %s", got)
	}
	for want, all := range map[string]map[string]value{
		"0a069fc8699c256db74f77ccd45b9bda": {"n": {"Number", "5", nil}, "bin": {"Binary.x", "", []byte{0, 255}}, "s": {"String", "<&>", nil}},
		"235c5c510d26fb653d073faed50ae77c": {"timestamp": {"Number", "1493147359900", nil}},
		"c4636a382442c959322dd83fa5f7bda6": {"é": {"String.é", "é", nil}, "a": {"String", "x", nil}},
	} {
		if got := sumAttributes(all); got != want {
			t.Errorf("%v: got %s, want %s", all, got, want)
		}
	}
}
