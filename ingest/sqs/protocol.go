package sqs

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
)

// The package speaks the JSON protocol. What comes in the older one, forms and XML, is translated
// on its way in and out.
const (
	jsonType = "application/x-amz-json-1.0"
	xmlType  = "text/xml"
	xmlns    = ` xmlns="http://queue.amazonaws.com/doc/2012-11-05/"`

	headerTarget     = "X-Amz-Target"
	headerQueryError = "X-Amzn-Query-Error"
)

// request has the parameters of all actions.
type request struct {
	QueueUrl            string //revive:disable-line -- AWS's names
	QueueName           string
	QueueNamePrefix     string
	MaxNumberOfMessages json.Number
	WaitTimeSeconds     json.Number
	Attributes          bounded[map[string]string]

	AttributeNames              bounded[[]string]
	MessageSystemAttributeNames bounded[[]string]
	MessageAttributeNames       bounded[[]string]

	Entries bounded[[]entry]
	entry   // of an action on one message

	// What Spillway does not have.
	QueueOwnerAWSAccountId json.RawMessage //revive:disable-line
	Tags                   json.RawMessage
}

// bounded is a list or a map of at most maxElements: a body of many empty ones would take more
// memory than it has bytes.
type bounded[T any] struct{ of T }

const maxElements = 100

var errTooMany = errors.New("too many elements")

func (b *bounded[T]) UnmarshalJSON(text []byte) error {
	n := 0
	gjson.ParseBytes(text).ForEach(func(_, _ gjson.Result) bool {
		n++
		return n <= maxElements
	})
	if n > maxElements {
		return errTooMany
	}
	return json.Unmarshal(text, &b.of)
}

// parse reads action and parameters.
func (c *call) parse() *failure {
	// What is parsed holds the body twice more, and messages do once.
	if rejected := c.Reserve(4 * len(c.body)); rejected != nil {
		return failureOf(rejected)
	}
	body, malformed := c.body, false
	target := string(c.Ctx.Request.Header.Peek(headerTarget))
	if c.isForm = target == ""; c.isForm {
		body, malformed = fromForm(body)
		c.action = gjson.GetBytes(body, "Action").Str
	}
	if action, found := strings.CutPrefix(target, "AmazonSQS."); found {
		c.action = action
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	if malformed || !utf8.Valid(body) || !wire.ValidJSON(body) ||
		json.Unmarshal(body, &c.request) != nil {
		return fail("SerializationException",
			"the body is an object of JSON, or a form, in UTF-8, of the parameters of an action in "+
				"their types, with at most 100 elements in a list and 1000 values in a form")
	}
	return nil
}

const (
	maxValues = 1000 // of a form: 10 messages with 10 attributes each have 450
	maxParts  = 8    // of a name
)

// branch is a part of the tree that the names of a form make: of texts and branches.
type branch map[string]any

// fromForm makes a form a body of JSON.
func fromForm(form []byte) (body []byte, malformed bool) {
	root, n := branch{}, 0
	for pair := range bytes.SplitSeq(form, []byte{'&'}) {
		name, value, _ := strings.Cut(string(pair), "=")
		name, errName := url.QueryUnescape(name)
		value, errValue := url.QueryUnescape(value)
		n++
		if errName != nil || errValue != nil || n > maxValues ||
			!utf8.ValidString(name+value) ||
			!root.put(strings.SplitN(name, ".", maxParts), value) {
			return nil, true
		}
	}
	body, err := json.Marshal(root.object())
	return body, err != nil
}

// put adds a text; false: there is another in its place.
func (b branch) put(path []string, text string) bool {
	below, exists := b[path[0]]
	if len(path) == 1 {
		b[path[0]] = text
		return !exists
	}
	if !exists {
		below = branch{}
		b[path[0]] = below
	}
	next, isBranch := below.(branch)
	return isBranch && next.put(path[1:], text)
}

// object is the branch as the JSON protocol has it. Lists are numbered from 1: those of entries and
// names have other names there, and maps are lists of names and values here.
func (b branch) object() map[string]any {
	object := make(map[string]any, len(b))
	for name, value := range b {
		below, isBranch := value.(branch)
		switch {
		case !isBranch:
			object[name] = value
		case below["1"] == nil:
			object[name] = below.object()
		case strings.HasSuffix(name, "BatchRequestEntry"):
			object["Entries"] = below.list()
		case strings.HasSuffix(name, "Name"):
			object[name+"s"] = below.list()
		default:
			pairs := map[string]any{}
			for _, pair := range below.list() {
				of, _ := pair.(map[string]any)
				key, _ := of["Name"].(string)
				pairs[key] = of["Value"]
			}
			object[name+"s"] = pairs
		}
	}
	return object
}

// list has the elements of a branch in the order of their numbers.
func (b branch) list() (all []any) {
	for n := 1; n <= maxValues && len(all) < len(b); n++ {
		switch value := b[strconv.Itoa(n)].(type) {
		case branch:
			all = append(all, value.object())
		case string:
			all = append(all, value)
		}
	}
	return all
}

func (c *call) contentType() string {
	if c.isForm {
		return xmlType
	}
	return jsonType
}

// encode appends an answer.
func (c *call) encode(dst []byte, answer any) []byte {
	text, _ := json.Marshal(answer) // of texts it cannot fail
	if !c.isForm {
		return append(dst, text...)
	}
	response, result := c.action+"Response", c.action+"Result"
	dst = append(append(append(append(dst, '<'), response...), xmlns...), '>')
	dst = appendXML(dst, c.action, result, gjson.ParseBytes(text))
	dst = append(dst, "<ResponseMetadata><RequestId>"+ulid.Make().String()...)
	return append(dst, "</RequestId></ResponseMetadata></"+response+">"...)
}

// appendXML appends a value of the JSON protocol as the other has it: the elements of a list one
// after the other, and a map as a list of names and values.
func appendXML(dst []byte, action, name string, value gjson.Result) []byte {
	element := strings.TrimSuffix(name, "s")
	switch name {
	case "Successful":
		element = action + "ResultEntry"
	case "Failed":
		element = "BatchResultErrorEntry"
	}
	switch {
	case value.IsArray():
		value.ForEach(func(_, item gjson.Result) bool {
			dst = appendXML(dst, action, element, item)
			return true
		})
		return dst
	case strings.HasSuffix(name, "Attributes") && value.IsObject():
		value.ForEach(func(key, of gjson.Result) bool {
			dst = append(append(append(dst, '<'), element...), "><Name>"...)
			dst = append(appendEscaped(dst, key.String()), "</Name>"...)
			dst = appendXML(dst, action, "Value", of)
			dst = append(append(append(dst, "</"...), element...), '>')
			return true
		})
		return dst
	}
	dst = append(append(append(dst, '<'), name...), '>')
	if value.IsObject() {
		value.ForEach(func(key, of gjson.Result) bool {
			dst = appendXML(dst, action, key.Str, of)
			return true
		})
	} else {
		dst = appendEscaped(dst, value.String())
	}
	return append(append(append(dst, "</"...), name...), '>')
}

func appendEscaped(dst []byte, text string) []byte {
	var escaped bytes.Buffer
	_ = xml.EscapeText(&escaped, []byte(text)) // a buffer takes everything
	return append(dst, escaped.Bytes()...)
}

// failure is an answer that is an error, with its code of the older protocol.
type failure struct {
	code, text string
	rejected   *ingest.Rejection // how the server counts it
}

const (
	aws         = "AWS.SimpleQueueService."
	unsupported = aws + "UnsupportedOperation"
	noQueue     = aws + "NonExistentQueue"
	missing     = "MissingParameter"
	invalid     = "InvalidParameterValue"
	nameExists  = "QueueAlreadyExists"
	badHandle   = "ReceiptHandleIsInvalid"
	throttled   = "RequestThrottled"
	unavailable = "ServiceUnavailable"
)

func fail(code, text string) *failure {
	return &failure{code, text, ingest.Reject(wire.CodeBadRequest, "")}
}

// codes are AWS's for those of the server. Its clients repeat what is throttled or unavailable.
var codes = map[wire.Code]string{
	wire.CodeUnauthorized:     "InvalidClientTokenId",
	wire.CodeForbidden:        "AccessDenied",
	wire.CodeCrossOrigin:      "AccessDenied",
	wire.CodeBadHost:          "AccessDenied",
	wire.CodeNoSuchNamespace:  noQueue,
	wire.CodeBadQueue:         noQueue,
	wire.CodeBodyTooLarge:     aws + "BatchRequestTooLong",
	wire.CodeRateLimited:      throttled,
	wire.CodeTooManyEntries:   throttled,
	wire.CodeTooManyJobs:      throttled,
	wire.CodeTooManyQueues:    throttled,
	wire.CodeInternal:         unavailable,
	wire.CodeStoreUnavailable: unavailable,
	wire.CodeStoreFull:        unavailable,
	wire.CodeOverloaded:       unavailable,
	wire.CodeShuttingDown:     unavailable,
	wire.CodeHungUp:           unavailable,
}

// failureOf says a rejection of the server in AWS's words; nil: there is none.
func failureOf(r *ingest.Rejection) *failure {
	if r == nil {
		return nil
	}
	f := &failure{codes[r.Code], r.Text(), r}
	if f.code == "" {
		f.code = invalid
	}
	return f
}

type failureKey struct{}

// reject leaves the answer to answerFailure: then the server counts it, and reads or cuts off what
// is left of the body.
func (f *failure) reject(x *ingest.Exchange) *ingest.Rejection {
	if f == nil {
		return nil
	}
	x.Ctx.SetUserValue(failureKey{}, f)
	return f.rejected
}

// answerFailure answers what the handler or the server rejects. The server has set the status.
func answerFailure(x *ingest.Exchange, rejected *ingest.Rejection) {
	f, known := x.Ctx.UserValue(failureKey{}).(*failure)
	if !known {
		f = failureOf(rejected)
	}
	status, blamed := x.Ctx.Response.StatusCode(), "Sender"
	if f.code == unavailable {
		blamed = "Receiver"
	}
	if status == fasthttp.StatusUnauthorized { // AWS has none
		status = fasthttp.StatusForbidden
		x.Ctx.Response.Header.Del(fasthttp.HeaderWWWAuthenticate)
	}
	if len(x.Ctx.Request.Header.Peek(headerTarget)) > 0 {
		shape := strings.TrimPrefix(f.code, aws)
		switch f.code {
		case noQueue:
			shape = "QueueDoesNotExist"
		case nameExists:
			shape = "QueueNameExists"
		}
		x.Ctx.Response.Header.Set(headerQueryError, f.code+";"+blamed)
		text, _ := json.Marshal(map[string]string{
			"__type":  "com.amazonaws.sqs#" + shape,
			"message": f.text,
		})
		_ = x.Answer(status, jsonType, text) // small ones need no memory
		return
	}
	text, _ := json.Marshal(map[string]string{"Type": blamed, "Code": f.code,
		"Message": f.text})
	answer := appendXML([]byte("<ErrorResponse"+xmlns+">"), "", "Error",
		gjson.ParseBytes(text))
	answer = append(answer, "<RequestId>"+ulid.Make().String()+"</RequestId></ErrorResponse>"...)
	_ = x.Answer(status, xmlType, answer)
}
