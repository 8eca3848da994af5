package firehose_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/firehose"
	"github.com/spillway-io/spillway/ingest/protocol/protocoltest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const (
	putRecord  = "X-Amz-Target: Firehose_20150804.PutRecord"
	putBatch   = "X-Amz-Target: Firehose_20150804.PutRecordBatch"
	kinesis    = "X-Amz-Target: Kinesis_20131202.PutRecord"
	putRecords = "X-Amz-Target: Kinesis_20131202.PutRecords"
	endpoint   = "X-Amz-Firehose-Source-Arn: arn:aws:firehose:us-east-1:1:deliverystream/laps\nX-Amz-Firehose-Request-Id: r"
)

var (
	large  = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 2000)))
	limit  = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", protocoltest.MaxEntry)))
	noBody = protocol.ErrBody.Error()
)

var rows = []protocoltest.Row{
	{"a record of Firehose", "", putRecord, `{"DeliveryStreamName":"laps","Record":{"Data":"e30="}}`, "laps @0 {}"},
	{"a batch", "", putBatch, `{"DeliveryStreamName":"laps","Records":[{"Data":"e30="},{"Data":"AP8="},{"Data":""}]}`, "laps @0 {}\nlaps @0 \x00\xff\nlaps @0 "},
	{"records that are none", "", putBatch, `{"Records":[7,{},{"Data":7},{"Data":{}},{"Data":"*"},{"Data":"e30"},{"Data":"e30="}]}`, strings.Repeat("! bad_item\n", 6) + " @0 {}"},
	{"a record too large", "", putBatch, `{"Records":[{"Data":"` + large + `"},{"Data":"e30="}]}`, "! too_large\n @0 {}"},
	{"a record as large as may be", "", putBatch, `{"Records":[{"Data":"` + limit + `"}]}`, " @0 " + strings.Repeat("x", protocoltest.MaxEntry)},
	{"base64 with escapes", "", putBatch, `{"Records":[{"Data":"\u0065\/8="}]}`, " @0 {\xff"},
	{"a record of Kinesis", "", kinesis, `{"StreamName":"s","PartitionKey":"kart 7","Data":"e30="}`, "kart-7 @0 {}"},
	{"records of Kinesis", "", putRecords, `{"Records":[{"PartitionKey":"a","Data":"e30="},{"PartitionKey":7,"Data":"e30="}],"StreamName":"laps"}`, "a @0 {}\nlaps @0 {}"},
	{"an endpoint", "", endpoint, `{"requestId":"r","timestamp":1,"records":[{"data":"e30="}]}`, "laps @0 {}"},
	{"no records", "", putBatch, `{"Records":[]}`, ""},
	{"a batch that is no list", "", putBatch, `{"Records":"e30="}`, noBody},
	{"no list", "", putBatch, `{}`, noBody},
	{"another action", "", "X-Amz-Target: Kinesis_20131202.ListShards", `{"Records":[]}`, noBody},
	{"an endpoint without records", "", endpoint, `{"requestId":"r"}`, noBody},
	{"no JSON", "", putBatch, `Records`, noBody},
	{"513 levels", "", putBatch, `{"Records":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`, noBody},
}

func TestARecordIsWhatItsBase64Holds(t *testing.T) {
	t.Parallel()
	protocoltest.Run(t, firehose.Adapter{}, rows)
}

func TestAResultSaysWhetherToSendItsRecordAgain(t *testing.T) {
	t.Parallel()
	results := []wire.Result{{Index: 0, Disposition: wire.Drop, Reason: "too_large"}, {Index: 1, Disposition: wire.Retry, Reason: "store_unavailable"}}
	for target, want := range map[string]string{
		putBatch:   `{"FailedPutCount":1,"RequestResponses":[{"RecordId":"0"},{"ErrorCode":"ServiceUnavailableException","ErrorMessage":"store_unavailable"}]}`,
		putRecords: `{"FailedRecordCount":1,"Records":[{"SequenceNumber":"0","ShardId":"shardId-000000000000"},{"ErrorCode":"ProvisionedThroughputExceededException","ErrorMessage":"store_unavailable"}]}`,
		putRecord:  `{"RecordId":"0"}`,
	} {
		if _, text := (firehose.Adapter{}).Answer(nil, protocol.Answer{Request: protocoltest.Request("", target), Count: 2, Results: results}); string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	for _, row := range []struct {
		target string
		status int
		want   string
	}{
		{kinesis, 429, `{"__type":"ProvisionedThroughputExceededException","message":"m"}`}, {putRecord, 503, `{"__type":"ServiceUnavailableException","message":"m"}`},
		{putRecord, 401, `{"__type":"UnrecognizedClientException","message":"m"}`}, {putRecord, 413, `{"__type":"ValidationException","message":"m"}`},
	} {
		if _, text := (firehose.Adapter{}).Failure(nil, protocol.Failure{Request: protocoltest.Request("", row.target), Status: row.status, Message: "m"}); string(text) != row.want {
			t.Errorf("got %s, want %s", text, row.want)
		}
	}
}

func TestTheKeyIsTheIDOfTheSignatureOrOfTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"X-Amz-Firehose-Access-Key: k", "Authorization: AWS4-HMAC-SHA256 Credential=k/20251120/us-east-1/firehose/aws4_request, SignedHeaders=host, Signature=0"} {
		if key := (firehose.Adapter{}).HeaderKey(protocoltest.Request("", header).Header); key != "k" {
			t.Errorf("%s: got %q", header, key)
		}
	}
}

func FuzzFirehose(f *testing.F) { protocoltest.Fuzz(f, firehose.Adapter{}, rows) }
