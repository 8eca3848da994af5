package sqs

import (
	"crypto/md5" // #nosec G501 -- SQS's checksum
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/jobs"
)

const (
	maxBatch      = 10
	maxBatchBytes = 1 << 20
	maxDelay      = 900    // seconds
	maxVisibility = 43_200 // seconds
	maxWait       = 20     // seconds
)

// entry is what an action says of one message.
type entry struct {
	ID                string `json:"Id"`
	MessageBody       string
	DelaySeconds      json.Number
	MessageAttributes bounded[map[string]value]
	ReceiptHandle     string
	VisibilityTimeout json.Number

	// What Spillway does not have.
	MessageGroupId          json.RawMessage //revive:disable-line
	MessageDeduplicationId  json.RawMessage //revive:disable-line
	MessageSystemAttributes json.RawMessage

	done   done
	failed *failure
}

// done is the answer about a message.
type done struct {
	ID               string `json:"Id,omitempty"`
	MessageID        string `json:"MessageId,omitempty"`
	MD5OfMessageBody string `json:",omitempty"`

	MD5OfMessageAttributes string `json:",omitempty"`
}

// fail says what is wrong with a message first.
func (e *entry) fail(code, text string) {
	if e.failed == nil {
		e.failed = fail(code, text)
	}
}

// number reads a number, -1 where there is none, and in a form a text.
func (e *entry) number(name string, n json.Number, most int) int {
	if n == "" {
		return -1
	}
	number, err := strconv.Atoi(n.String())
	if err != nil || number < 0 || number > most {
		e.fail(invalid, fmt.Sprintf("%s is a whole number of at most %d", name, most))
	}
	return number
}

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// each lets do what the action says of its message, or of the entries of a batch.
func (c *call) each(do func([]*entry)) (any, *failure) {
	if !strings.HasSuffix(c.action, "Batch") {
		do([]*entry{&c.entry})
		return c.done, c.entry.failed
	}
	var all []*entry
	ids := map[string]bool{}
	for i := range c.Entries.of {
		e := &c.Entries.of[i]
		if !validID.MatchString(e.ID) {
			return nil, fail(aws+"InvalidBatchEntryId",
				"Id is 1 to 80 letters, digits, - and _")
		}
		ids[e.ID] = true
		e.done.ID = e.ID
		all = append(all, e)
	}
	switch {
	case len(all) == 0:
		return nil, fail(aws+"EmptyBatchRequest", "a batch has at least one entry")
	case len(all) > maxBatch:
		return nil, fail(aws+"TooManyEntriesInBatchRequest",
			"a batch has at most 10 entries")
	case len(ids) < len(all):
		return nil, fail(aws+"BatchEntryIdsNotDistinct", "two entries have the same Id")
	}
	do(all)
	type failedEntry struct {
		ID          string `json:"Id"`
		Code        string
		Message     string
		SenderFault bool
	}
	var answer struct {
		Successful []done        `json:",omitempty"`
		Failed     []failedEntry `json:",omitempty"`
	}
	for _, e := range all {
		if f := e.failed; f != nil {
			answer.Failed = append(answer.Failed,
				failedEntry{e.ID, f.code, f.text, f.code != unavailable})
		} else {
			answer.Successful = append(answer.Successful, e.done)
		}
	}
	return answer, nil
}

// send publishes messages.
func (c *call) send() (any, *failure) {
	defaults, bytes := c.defaults(), 0
	return c.each(func(all []*entry) {
		var of []*entry
		var messages []jobs.Message
		for _, e := range all {
			m := jobs.Message{
				Payload:    []byte(e.MessageBody),
				Attributes: e.attributes(),
				Tries:      defaults.Tries,
				Delay:      defaults.Delay,
			}
			size := len(m.Payload) + len(m.Attributes)
			bytes += size
			if delay := e.number("DelaySeconds", e.DelaySeconds, maxDelay); delay >= 0 {
				m.Delay = time.Duration(delay) * time.Second
			}
			switch {
			case len(e.MessageGroupId)+len(e.MessageDeduplicationId)+len(e.MessageSystemAttributes) > 0:
				e.fail(unsupported, "messages have no groups, deduplication and system attributes")
			case size == 0:
				e.fail(missing, "MessageBody is missing, or empty")
			case !validText(e.MessageBody):
				e.fail("InvalidMessageContents",
					"MessageBody has characters that XML does not have")
			case size > c.of.MaxEntry():
				e.fail(invalid, fmt.Sprintf("a message has at most %d bytes, max_entry", c.of.MaxEntry()))
			case bytes > maxBatchBytes:
				e.fail(aws+"BatchRequestTooLong",
					"the messages of a batch have at most 1 MiB together")
			}
			if e.failed == nil {
				e.done.MD5OfMessageBody = sum(m.Payload)
				of, messages = append(of, e), append(messages, m)
			}
		}
		c.of.Publish(messages)
		for i := range messages {
			of[i].done.MessageID, of[i].failed = messages[i].ID, failureOf(messages[i].Rejected)
		}
	})
}

// settle deletes messages, or changes how long they are invisible. A receipt handle is the id of a
// job and the attempt of the claim.
func (c *call) settle() (any, *failure) {
	return c.each(func(all []*entry) {
		var of []*entry
		var leases []jobs.Lease
		for _, e := range all {
			id, digits, _ := strings.Cut(e.ReceiptHandle, ".")
			attempt, err := strconv.Atoi(digits)
			if err != nil || attempt < 1 {
				e.fail(badHandle, "ReceiptHandle is not one that ReceiveMessage answered")
			}
			l := jobs.Lease{ID: id, Attempt: attempt, Do: "ack"}
			if !strings.HasPrefix(c.action, "Delete") {
				seconds := e.number("VisibilityTimeout", e.VisibilityTimeout,
					maxVisibility)
				switch l.Do = "touch"; seconds {
				case -1:
					e.fail(missing, "VisibilityTimeout is missing")
				case 0:
					l.Do = "nack"
				}
				l.After = time.Duration(seconds) * time.Second
			}
			if e.failed == nil {
				of, leases = append(of, e), append(leases, l)
			}
		}
		c.of.Settle(leases)
		for i, l := range leases {
			switch e := of[i]; {
			case l.Bad:
				e.fail(badHandle, "ReceiptHandle is of another queue")
			case l.Rejected != nil:
				e.failed = failureOf(l.Rejected)
			case l.Do != "ack" && l.State == "gone":
				e.fail(aws+"MessageNotInflight",
					"the message is gone, or was received again since")
			}
		}
	})
}

// received is a message that a client gets.
type received struct {
	MessageID     string `json:"MessageId"`
	ReceiptHandle string
	MD5OfBody     string
	Body          string
	Attributes    map[string]string `json:",omitempty"`

	MD5OfMessageAttributes string           `json:",omitempty"`
	MessageAttributes      map[string]value `json:",omitempty"`
}

// receive claims messages, and answers with them.
func (c *call) receive() (any, *failure) {
	count := c.number("MaxNumberOfMessages", c.MaxNumberOfMessages, maxBatch)
	wait := c.number("WaitTimeSeconds", c.WaitTimeSeconds, maxWait)
	visible := c.number("VisibilityTimeout", c.VisibilityTimeout, maxVisibility)
	if count == 0 {
		c.entry.fail(invalid, "MaxNumberOfMessages is 1 to 10")
	}
	if c.entry.failed != nil {
		return nil, c.entry.failed
	}
	defaults := c.defaults()
	ttr := defaults.TTR
	if visible >= 0 {
		ttr = time.Duration(visible) * time.Second
	}
	return nil, failureOf(c.of.Claim(max(1, count), defaults.Tries, ttr, time.Duration(max(0, wait))*time.Second,
		jobs.Form{
			Type: c.contentType(),
			// An escaped byte has six at most, and an attribute stands there with its type.
			Size: func(j *jobs.Job) int { return 1024 + 6*len(j.Payload) + 16*len(j.Attributes) },
			Append: func(dst []byte, all []jobs.Job) []byte {
				var answer struct {
					Messages []received `json:",omitempty"`
				}
				for i := range all {
					answer.Messages = append(answer.Messages, c.message(&all[i]))
				}
				return c.encode(dst, answer)
			},
		}))
}

// message is a job as a client gets it.
func (c *call) message(j *jobs.Job) received {
	m := received{
		MessageID:     j.ID,
		ReceiptHandle: j.ID + "." + strconv.Itoa(j.Attempt),
		Body:          string(j.Payload),
	}
	if !validText(m.Body) { // published by another API
		m.Body = base64.StdEncoding.EncodeToString(j.Payload)
	}
	m.MD5OfBody = sum([]byte(m.Body))
	known := map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(j.Attempt),
		"SentTimestamp":           strconv.FormatInt(j.Published, 10),
		"SenderId":                c.namespace,
	}
	if j.Attempt == 1 {
		known["ApproximateFirstReceiveTimestamp"] = strconv.FormatInt(j.Now, 10)
	}
	m.Attributes = only(known, slices.Concat(c.AttributeNames.of,
		c.MessageSystemAttributeNames.of))
	if len(j.Attributes) > 0 && len(c.MessageAttributeNames.of) > 0 {
		m.MessageAttributes = only(valuesOf(j.Attributes), c.MessageAttributeNames.of)
		m.MD5OfMessageAttributes = sumAttributes(m.MessageAttributes)
	}
	return m
}

// only leaves of a map what a request asks for: by name, by prefix.*, or All.
func only[V any](of map[string]V, asked []string) map[string]V {
	maps.DeleteFunc(of, func(name string, _ V) bool {
		return !slices.ContainsFunc(asked, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, ".*")
			return pattern == name || pattern == "All" || wild &&
				strings.HasPrefix(name, prefix)
		})
	})
	return of
}

// value is an attribute of a message. A job has it as an attribute, a binary one in base64, and
// under typesName the types of all that are no String, as an object.
type value struct {
	DataType    string
	StringValue string `json:",omitempty"`
	BinaryValue []byte `json:",omitempty"`
}

func (v value) binary() bool { return strings.HasPrefix(v.DataType, "Binary") }

const (
	maxAttributes = 10
	typesName     = "sqs"
)

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	validType = regexp.MustCompile(`^(String|Number|Binary)(\.[A-Za-z0-9_.-]{1,240})?$`)
	// reserved are names that mean something to Spillway or to AWS.
	reserved = regexp.MustCompile(`^(sqs|shard_index|shard_total|schedule|tick|cause|(?i:aws|amazon)\..*)$`)
)

// attributes are those of a message as a job has them; nil: it has none.
func (e *entry) attributes() []byte {
	all := e.MessageAttributes.of
	if len(all) == 0 {
		return nil
	}
	stored, types := map[string]string{}, map[string]string{}
	for name, v := range all {
		_, err := strconv.ParseFloat(v.StringValue, 64)
		kind := validType.FindStringSubmatch(v.DataType)
		if !validName.MatchString(name) || reserved.MatchString(name) || kind == nil ||
			!validText(v.StringValue) || kind[1] == "Number" && err != nil ||
			v.binary() != (len(v.BinaryValue) > 0) ||
			v.binary() != (v.StringValue == "") ||
			len(all) > maxAttributes {
			e.fail(invalid, "a message has at most 10 attributes, each with a name of 1 to 256 letters, "+
				"digits, ., - and _, but sqs, cause, schedule, tick, shard_index, shard_total, aws.* and amazon.*, a DataType and a value of it")
			return nil
		}
		if stored[name] = v.StringValue; v.binary() {
			stored[name] = base64.StdEncoding.EncodeToString(v.BinaryValue)
		}
		if v.DataType != "String" {
			types[name] = v.DataType
		}
	}
	if len(types) > 0 {
		text, _ := json.Marshal(types) // of texts it cannot fail
		stored[typesName] = string(text)
	}
	e.done.MD5OfMessageAttributes = sumAttributes(all)
	text, _ := json.Marshal(stored)
	return text
}

// valuesOf are the attributes of a job.
func valuesOf(object []byte) map[string]value {
	all := map[string]value{}
	parsed := gjson.ParseBytes(object)
	var types map[string]string
	_ = json.Unmarshal([]byte(parsed.Get(typesName).Str), &types) // there may be none
	parsed.ForEach(func(key, text gjson.Result) bool {
		name := key.String()
		v := value{DataType: types[name], StringValue: text.String()}
		if v.DataType == "" {
			v.DataType = "String"
		}
		if v.binary() {
			v.BinaryValue, _ = base64.StdEncoding.DecodeString(v.StringValue)
			v.StringValue = ""
		}
		all[name] = v
		return true
	})
	delete(all, typesName)
	return all
}

// sumAttributes is SQS's checksum of attributes; "": there are none.
func sumAttributes(all map[string]value) string {
	var text []byte
	add := func(part string) {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part))) // #nosec G115 -- of a body
		text = append(text, part...)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, kind := all[name], byte(1)
		if v.binary() {
			kind = 2
		}
		add(name)
		add(v.DataType)
		text = append(text, kind)
		add(v.StringValue + string(v.BinaryValue))
	}
	if len(text) == 0 {
		return ""
	}
	return sum(text)
}

func sum(text []byte) string {
	sum := md5.Sum(text) // #nosec G401 -- SQS's checksum
	return hex.EncodeToString(sum[:])
}

// validText reports whether a text has only characters that XML has, as SQS wants it.
func validText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xfffe || r == 0xffff
	})
}
