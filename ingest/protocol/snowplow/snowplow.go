// Package snowplow is the wire of Snowplow's trackers: tp2, and the pixel.
package snowplow

import (
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
)

// Adapter is the protocol.Adapter of Snowplow's trackers.
type Adapter struct{}

var (
	names = protocol.Names{
		Keys:       []string{"aid"},
		SentAt:     "stm",
		ID:         "eid",
		Time:       "dtm",
		TextMillis: true,
	}
	paths = protocol.Paths{{"aid"}}
)

// HeaderKey is empty: the body has the key.
func (Adapter) HeaderKey(protocol.Values) string { return "" }

// BodyKeys is the application's id.
func (Adapter) BodyKeys() []string { return names.Keys }

// Paths is the application's id, too.
func (Adapter) Paths() protocol.Paths { return paths }

func isPixel(r protocol.Request) bool { return r.Call == "i" }

// Open takes the events of a payload, or of the pixel the parameters of the query as one.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	if isPixel(r) {
		body = []byte{'{'}
		for name, value := range r.Query.All() {
			if len(body) > 1 {
				body = append(body, ',')
			}
			body = append(gjson.AppendJSONString(body, string(name)), ':')
			body = gjson.AppendJSONString(body, string(value))
		}
		body = append(body, '}')
	}
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	if isPixel(r) {
		return protocol.NewBatch(&names, root, "")
	}
	b, err := protocol.NewBatch(&names, root, "data")
	b.Key = root.Get("data.0.aid").Str
	return b, err
}

// pixel is a picture of one transparent point.
const pixel = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00," +
	"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

// Answer is ok, or a picture, whatever became of single events.
func (Adapter) Answer(a protocol.Answer) (int, []byte) {
	if isPixel(a.Request) {
		return http.StatusOK, []byte(pixel)
	}
	return http.StatusOK, []byte("ok")
}

// Failure has the status that decides whether trackers try again. They do so after each but 400,
// 401, 403, 410 and 422.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	switch f.Status {
	case http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		f.Status = http.StatusUnprocessableEntity
	}
	return f.Status, []byte(f.Message + "\n")
}

// Dress says that answers are texts or pictures. A failure of the pixel is shown to nobody.
func (Adapter) Dress(r protocol.Request, set func(name, value string)) {
	if isPixel(r) {
		set("Content-Type", "image/gif")
	} else {
		set("Content-Type", "text/plain; charset=utf-8")
	}
}
