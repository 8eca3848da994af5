// Package firehose is the wire of Amazon's streams: PutRecord and its batches of Firehose and of
// Kinesis, and what Firehose itself sends to an HTTP endpoint.
package firehose

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of Amazon's SDKs and of Firehose.
type Adapter struct{ protocol.HeaderKeyed }

const (
	headerEndpointKey = "X-Amz-Firehose-Access-Key"
	headerRequestID   = "X-Amz-Firehose-Request-Id"
	headerStream      = "X-Amz-Firehose-Source-Arn"
)

// HeaderKey is the access key of an endpoint, or the id of a signature, which does not count.
func (a Adapter) HeaderKey(header protocol.Values) string {
	return cmp.Or(string(header.Peek(headerEndpointKey)), a.HeaderKeyed.HeaderKey(header))
}

// action is what a request asks for, such as Kinesis and PutRecords; empty: it is one to an endpoint.
func action(r protocol.Request) (service, name string) {
	target, name, _ := strings.Cut(string(r.Header.Peek("X-Amz-Target")), ".")
	service, _, _ = strings.Cut(target, "_")
	return service, name
}

// Open takes records. The partition is PartitionKey of Kinesis, else the name of the stream.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	var records gjson.Result
	stream := protocol.FirstText(root, []string{"DeliveryStreamName", "StreamName"})
	switch _, name := action(r); name {
	case "PutRecord":
		if records = root.Get("Record"); !records.Exists() {
			records = root // of Kinesis
		}
	case "PutRecordBatch", "PutRecords":
		records = root.Get("Records")
	case "":
		records = root.Get("records")
		arn := r.Header.Peek(headerStream)
		stream = string(arn[bytes.LastIndexByte(arn, '/')+1:])
	}
	if !records.IsArray() && !records.IsObject() {
		return protocol.Batch{}, protocol.ErrBody
	}
	stream = protocol.PartitionName(stream)
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		var data []byte
		put := func(_, record gjson.Result) bool {
			text := record.Get("Data")
			if !text.Exists() {
				text = record.Get("data") // of an endpoint
			}
			if base64.StdEncoding.DecodedLen(len(text.Str)) > maxEntry+2 {
				return yield(protocol.Event{}, wire.ReasonTooLarge)
			}
			var err error
			if data, err = base64.StdEncoding.AppendDecode(data[:0], []byte(text.Str)); err != nil || text.Type != gjson.String {
				return yield(protocol.Event{}, wire.ReasonBadItem)
			}
			key := protocol.PartitionName(record.Get("PartitionKey").Str)
			return yield(protocol.Event{Data: data, Partition: cmp.Or(key, stream)}, "")
		}
		if records.IsObject() {
			put(gjson.Result{}, records)
			return nil
		}
		records.ForEach(put)
		return nil
	}), nil
}

// Itemizes is true of batches: programs send the records again that have an ErrorCode.
func (Adapter) Itemizes(r protocol.Request) bool {
	_, name := action(r)
	return name == "PutRecordBatch" || name == "PutRecords"
}

// Answer has a result for each record of a batch. A record that was dropped for good has that of
// one that was stored, because Amazon has no code that says not to send it again.
func (Adapter) Answer(dst []byte, a protocol.Answer) (int, []byte) {
	service, name := action(a.Request)
	if name == "" {
		return http.StatusOK, append(appendEndpoint(dst, a.Request), '}')
	}
	stored, failed, counted, list := `{"RecordId":"0"`, "ServiceUnavailableException", "FailedPutCount", "RequestResponses"
	if service == "Kinesis" {
		stored = `{"SequenceNumber":"0","ShardId":"shardId-000000000000"`
		failed, counted, list = "ProvisionedThroughputExceededException", "FailedRecordCount", "Records"
	}
	if name == "PutRecord" {
		return http.StatusOK, append(append(dst, stored...), '}')
	}
	retries := 0
	for _, r := range a.Results {
		if r.Disposition == wire.Retry {
			retries++
		}
	}
	dst = strconv.AppendInt(append(append(append(dst, `{"`...), counted...), `":`...), int64(retries), 10)
	dst = append(append(append(dst, `,"`...), list...), `":[`...)
	result := a.Failed()
	for i := range a.Count {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e := result(i); e != nil && e.Disposition == wire.Retry {
			dst = append(append(append(dst, `{"ErrorCode":"`...), failed...), `","ErrorMessage":"`...)
			dst = append(append(dst, e.Reason...), `"}`...)
		} else {
			dst = append(append(dst, stored...), '}')
		}
	}
	return http.StatusOK, append(dst, "]}"...)
}

// appendEndpoint begins the answer of an endpoint.
func appendEndpoint(dst []byte, r protocol.Request) []byte {
	dst = gjson.AppendJSONString(append(dst, `{"requestId":`...), string(r.Header.Peek(headerRequestID)))
	return strconv.AppendInt(append(dst, `,"timestamp":`...), time.Now().UnixMilli(), 10)
}

// Failure has the type that decides whether SDKs try again.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
	service, name := action(f.Request)
	if name == "" {
		dst = append(appendEndpoint(dst, f.Request), `,"errorMessage":`...)
		return f.Status, append(gjson.AppendJSONString(dst, f.Message), '}')
	}
	kind := "ValidationException"
	switch {
	case f.Status == http.StatusUnauthorized:
		kind = "UnrecognizedClientException"
		f.Status = http.StatusBadRequest // as Amazon does
	case f.Status == http.StatusTooManyRequests && service == "Kinesis":
		kind = "ProvisionedThroughputExceededException"
	case f.Status == http.StatusTooManyRequests:
		kind = "ThrottlingException"
	case f.Status >= http.StatusInternalServerError:
		kind = "ServiceUnavailableException"
	}
	dst = append(append(append(dst, `{"__type":"`...), kind...), `","message":`...)
	return f.Status, append(gjson.AppendJSONString(dst, f.Message), '}')
}

// Dress gives answers to SDKs their type.
func (Adapter) Dress(r protocol.Request, set func(name, value string)) {
	if _, name := action(r); name != "" {
		set("Content-Type", "application/x-amz-json-1.1")
	}
}
