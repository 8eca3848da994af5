package elasticsearch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cluster keeps documents in memory, and rejects what Elasticsearch rejects: requests
// that are not NDJSON to the letter, unknown actions, bad names, bodies over its limit,
// strangers, documents that do not fit the mapping which the first ones made, and an
// _id that is there.
type cluster struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	indexes  map[string]*index
	order    []*document
	auth     string // the Authorization it wants; empty: none
	maxBody  int    // http.max_content_length, of the inflated body; 0: none
	conflict int    // creates of an _id that was there
	requests int
	stall    chan struct{}
	answer   http.HandlerFunc             // not nil: instead of the cluster; it may call bulk
	reject   func(n int, id string) *fail // not nil: what happens to the n-th action of a request
}

type index struct {
	documents map[string]*document
	fields    map[string]string // path to type: what dynamic mapping made
	blocked   *fail             // every create
}

type document struct {
	index, id string
	source    json.RawMessage
}

// A fail is an error as the cluster words it. The reason quotes the document, as real ones do.
type fail struct {
	status int
	kind   string
	reason string
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{t: t, indexes: map[string]*index{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		stall, answer := c.stall, c.answer
		c.requests++
		c.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if answer == nil {
			answer = c.serve
		}
		answer(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// serve answers a request as the cluster does.
func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	status, answer := c.bulk(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	text, err := json.Marshal(answer)
	if err != nil {
		c.t.Error(err)
	}
	if filter := r.URL.Query().Get("filter_path"); filter != "" {
		text = filtered(c.t, text, strings.Split(filter, ","))
	}
	_, _ = w.Write(text)
}

func whole(status int, kind, reason string) (int, any) {
	return status, map[string]any{"error": map[string]any{"type": kind, "reason": reason}, "status": status}
}

func (c *cluster) bulk(r *http.Request) (int, any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path, isBulk := strings.CutSuffix(r.URL.Path, "/_bulk")
	switch {
	case c.auth != "" && r.Header.Get("Authorization") != c.auth:
		return whole(401, "security_exception", "unable to authenticate user")
	case !isBulk || r.Method != http.MethodPost:
		return whole(405, "method_not_allowed_exception", "Incorrect HTTP method")
	}
	body := r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return whole(400, "zip_exception", err.Error())
		}
		body = z
	}
	text, err := io.ReadAll(body)
	switch {
	case err != nil:
		return whole(400, "eof_exception", err.Error())
	case len(text) == 0:
		return whole(400, "parse_exception", "request body is required")
	case r.Header.Get("Content-Type") != "application/x-ndjson" && r.Header.Get("Content-Type") != "application/json":
		return whole(406, "media_type_header_exception", "Content-Type header is not supported")
	case c.maxBody > 0 && len(text) > c.maxBody:
		return whole(413, "content_too_long_exception", "entity content is too long")
	case text[len(text)-1] != '\n':
		return whole(400, "illegal_argument_exception", "The bulk request must be terminated by a newline [\\n]")
	}
	lines := bytes.Split(text[:len(text)-1], []byte("\n"))
	if len(lines)%2 != 0 {
		return whole(400, "illegal_argument_exception", "Malformed action/metadata line")
	}
	var items []any
	errored := false
	for i := 0; i < len(lines); i += 2 {
		var action map[string]struct {
			Index string `json:"_index"`
			ID    string `json:"_id"`
		}
		if json.Unmarshal(lines[i], &action) != nil || len(action) != 1 {
			return whole(400, "illegal_argument_exception", fmt.Sprintf("Malformed action/metadata line [%d]", i+1))
		}
		meta, isCreate := action["create"]
		if !isCreate {
			return whole(400, "illegal_argument_exception", "this cluster wants create, as its data streams do")
		}
		name := meta.Index
		if name == "" {
			name = strings.Trim(path, "/")
		}
		if len(meta.ID) > 512 {
			return whole(400, "action_request_validation_exception", "id is too long, must be no longer than 512 bytes")
		}
		result := map[string]any{"_index": name, "_id": meta.ID, "status": 201, "result": "created", "_version": 1}
		if f := c.create(i/2, name, meta.ID, lines[i+1]); f != nil {
			errored = true
			result = map[string]any{"_index": name, "_id": meta.ID, "status": f.status,
				"error": map[string]any{"type": f.kind, "reason": f.reason, "caused_by": map[string]any{"type": "x", "reason": f.reason}}}
		}
		items = append(items, map[string]any{"create": result})
	}
	return 200, map[string]any{"took": 3, "errors": errored, "items": items}
}

// create is one action; c.mu is held.
func (c *cluster) create(n int, name, id string, source []byte) *fail {
	if c.reject != nil {
		if f := c.reject(n, id); f != nil {
			return f
		}
	}
	if name == "" || strings.ToLower(name) != name || strings.ContainsAny(name, `\/*?"<>| ,#:{}`) || strings.ContainsAny(name[:1], "-_+") {
		return &fail{400, "invalid_index_name_exception", "Invalid index name [" + name + "]"}
	}
	x := c.indexes[name]
	if x == nil {
		x = &index{documents: map[string]*document{}, fields: map[string]string{}}
		c.indexes[name] = x
	}
	if x.blocked != nil {
		return x.blocked
	}
	added := map[string]string{}
	if err := x.parse(source, added); err != nil {
		return &fail{400, "document_parsing_exception", err.Error() + " in " + string(source)}
	}
	if x.documents[id] != nil {
		c.conflict++
		return &fail{409, "version_conflict_engine_exception", "[" + id + "]: version conflict, document already exists"}
	}
	for path, kind := range added {
		x.fields[path] = kind
	}
	d := &document{name, id, append(json.RawMessage(nil), source...)}
	x.documents[id] = d
	c.order = append(c.order, d)
	return nil
}

func (c *cluster) set(answer http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

func (c *cluster) rejecting(reject func(n int, id string) *fail) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reject = reject
}

func (c *cluster) stalled() func() {
	stall := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall = stall
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stall = nil
		close(stall)
	}
}

// taken are the documents, oldest first.
func (c *cluster) taken() []*document {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*document(nil), c.order...)
}

func (c *cluster) records() (list []sinktest.Record, err error) {
	for _, d := range c.taken() {
		var s struct {
			Timestamp            string `json:"@timestamp"`
			Namespace, Partition string
			Seq                  int64
			ID, Text             *string
			Data                 json.RawMessage
			Base64               *[]byte
		}
		decoder := json.NewDecoder(bytes.NewReader(d.source))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&s); err != nil {
			return nil, err
		}
		at, err := parseTime(s.Timestamp)
		if err != nil {
			return nil, err
		}
		r := sinktest.Record{Namespace: s.Namespace, Partition: s.Partition, Seq: s.Seq, Occurred: at, Payload: s.Data}
		if want := fmt.Sprintf("%s/%s/%d", r.Namespace, r.Partition, r.Seq); d.id != want {
			return nil, fmt.Errorf("_id %s, want %s", d.id, want)
		}
		if s.ID != nil {
			r.ID = []byte(*s.ID)
		}
		if s.Text != nil {
			r.Payload = []byte(*s.Text)
		}
		if s.Base64 != nil {
			r.Payload = *s.Base64
		}
		list = append(list, r)
	}
	return list, nil
}

// sinkOn is a sink of the index "events" at a host.
func sinkOn(t testing.TB, rest string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, "elasticsearch://"+rest)
}

func (c *cluster) sink(t testing.TB) *Sink { return sinkOn(t, c.Listener.Addr().String()+"/events") }

// parse checks a document against the mapping, and notes the fields it adds.
func (x *index) parse(source []byte, added map[string]string) error {
	d := json.NewDecoder(bytes.NewReader(source))
	d.UseNumber()
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errors.New("object expected")
	}
	if err := x.object(d, "", 1, added); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one object")
	}
	if len(x.fields)+len(added) > 1000 {
		return errors.New("limit of total fields [1000] has been exceeded")
	}
	return nil
}

func (x *index) object(d *json.Decoder, path string, depth int, added map[string]string) error {
	if depth > 20 {
		return errors.New("limit of mapping depth [20] has been exceeded")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		switch {
		case seen[name]:
			return fmt.Errorf("duplicate field [%s]", name)
		case strings.TrimSpace(name) == "":
			return errors.New("field name cannot be an empty string")
		}
		seen[name] = true
		if err := x.value(d, path+"."+name, depth, added); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (x *index) value(d *json.Decoder, path string, depth int, added map[string]string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	kind := ""
	switch v := token.(type) {
	case json.Delim:
		if v == '[' {
			for d.More() {
				if err := x.value(d, path, depth, added); err != nil {
					return err
				}
			}
			_, err := d.Token()
			return err
		}
		kind = "object"
	case string:
		kind = "text"
	case bool:
		kind = "boolean"
	case json.Number:
		kind = "number"
		if _, err := strconv.ParseFloat(v.String(), 64); err != nil {
			return errors.New("number is not finite")
		}
	case nil:
		return nil
	}
	known := x.fields[path]
	if known == "" {
		known = added[path]
	}
	switch {
	case known == "":
		added[path] = kind
	case known != kind && (known != "text" || kind == "object"): // text takes numbers and booleans
		return fmt.Errorf("failed to parse field [%s] of type [%s]", path, known)
	}
	if kind == "object" {
		return x.object(d, path, depth+1, added)
	}
	return nil
}

// filtered is a JSON text with the paths of a filter_path only.
func filtered(t testing.TB, text []byte, paths []string) []byte {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Error(err)
	}
	var keep func(v any, rest [][]string) any
	keep = func(v any, rest [][]string) any {
		switch v := v.(type) {
		case []any:
			var list []any
			for _, e := range v {
				if k := keep(e, rest); k != nil {
					list = append(list, k)
				}
			}
			if list == nil {
				return nil
			}
			return list
		case map[string]any:
			out := map[string]any{}
			for name, value := range v {
				var deeper [][]string
				for _, path := range rest {
					if path[0] != name && path[0] != "*" {
						continue
					}
					if len(path) == 1 {
						out[name] = value
					} else {
						deeper = append(deeper, path[1:])
					}
				}
				if k := keep(value, deeper); k != nil && out[name] == nil {
					out[name] = k
				}
			}
			if len(out) == 0 {
				return nil
			}
			return out
		}
		return nil
	}
	var rest [][]string
	for _, path := range paths {
		rest = append(rest, strings.Split(path, "."))
	}
	out, err := json.Marshal(keep(v, rest))
	if err != nil {
		t.Error(err)
	}
	return out
}
