package spillway

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// PublishOptions are what a publish may say. The zero value is a job that is ready at once,
// lives for ever and is delivered 3 times at most.
type PublishOptions struct {
	// Delay is how long the jobs wait until they are ready.
	Delay time.Duration
	// At is a time to come, instead of Delay.
	At time.Time
	// TTL is how long they live, Delay included; 0 is for ever.
	TTL time.Duration
	// Tries is how often they are delivered at most; 0 is the service's default, 25.
	Tries int
	// ID is your own name for a job: 1 to 64 letters, digits, _ and -. While a job of the
	// queue has it, dead or not, no other is stored under it. For one job only.
	ID string
	// Attributes are facts beside the payload, 16 at most. A rule may limit the leases of jobs that
	// have the same value of one.
	Attributes map[string]string
	// Shards stores the job this many times, each with the attributes shard_index, from 0,
	// and shard_total. For one job only.
	Shards int
	// Key makes a repeat within Dedup (0 is 2m; at most 24h) store nothing and answer what
	// the first did. Without one each call has a key of its own, for its own attempts.
	Key   string
	Dedup time.Duration
	// Unique is for how long no other job is stored under UniqueKey, or ID, whatever becomes of the first: 1s to
	// 24h. OnConflict is what a double does to the first while that is delayed: keep, the default,
	// replace or extend. For one job only.
	Unique     time.Duration
	UniqueKey  string
	OnConflict string
	// OnEnd is the queue that gets a job when a job ends: {"event":"acked","queue","id",…}.
	OnEnd string
	// Moved: it comes from another queue, so its Attributes may be those that the service set there.
	Moved bool
}

// Published is what became of a publish.
type Published struct {
	IDs      []string // of the jobs, in their order
	Repeated bool     // an earlier publish with the same Key stored them
	Exists   bool     // a job with the same ID exists, or one is Unique; nothing was stored
	Changed  bool     // that job was changed, as OnConflict says
	Retried  bool     // the answer to an attempt before was lost: Repeated may be of that attempt
}

// Publish stores a job, and returns when the service has it. Attempts in vain do not make it
// twice: all have the same Idempotency-Key, and end before the service forgets it. After
// ErrUnknown, also of a ctx that ended, repeat it with the same Key.
func (q *Queues) Publish(ctx context.Context, queue string, payload []byte,
	o PublishOptions) (Published, error) {
	if len(payload) == 0 {
		return Published{}, ErrEmpty
	}
	return q.publish(ctx, queue, "application/octet-stream", payload, o, url.Values{})
}

// PublishMany stores several jobs, all or none: 1000 and 1 MiB at most with the service's
// defaults.
func (q *Queues) PublishMany(ctx context.Context, queue string, payloads [][]byte,
	o PublishOptions) (Published, error) {
	var body []byte
	for _, payload := range payloads {
		switch {
		case len(payload) == 0:
			return Published{}, ErrEmpty
		case bytes.IndexByte(payload, '\n') >= 0 || payload[len(payload)-1] == '\r':
			return Published{}, &Error{Code: "bad_ndjson", Message: "a payload has a line break: publish it alone",
				is: ErrInvalid}
		}
		body = append(append(body, payload...), '\n')
	}
	if len(body) == 0 {
		return Published{}, ErrEmpty
	}
	return q.publish(ctx, queue, "application/x-ndjson", body, o, url.Values{})
}

func (q *Queues) publish(ctx context.Context, queue, contentType string, body []byte,
	o PublishOptions, query url.Values) (Published, error) {
	said, err := q.sendJobs(ctx, queue, contentType, body, o, query)
	switch {
	case err != nil:
	case said.Evicted != nil:
		return Published{}, errBuffer()
	case len(said.IDs) == 0 || slices.Contains(said.IDs, ""):
		return Published{}, errForeign
	}
	return Published{IDs: said.IDs, Repeated: said.Repeated && o.Key != "", Exists: said.Exists, Changed: said.Changed,
		Retried: said.retried}, err
}

// publishedForm is the answer to a publish.
type publishedForm struct {
	Accepted         int
	Evicted          *int // of a buffer's answer
	IDs              []string
	Repeated, Exists bool
	Changed          bool

	retried bool // not said: by what is sent again
}

func (q *Queues) sendJobs(ctx context.Context, queue, contentType string, body []byte,
	o PublishOptions, query url.Values) (said publishedForm, err error) {
	if err := checkQueue(queue); err != nil {
		return said, err
	}
	r := jobRequest{
		method:      http.MethodPost,
		path:        queue,
		query:       query,
		contentType: contentType,
		key:         o.Key,
		body:        body,
	}
	set := func(name string, d time.Duration) {
		if d != 0 {
			r.query.Set(name, d.String())
		}
	}
	set("delay", o.Delay)
	set("ttl", o.TTL)
	if o.Tries != 0 {
		r.query.Set("tries", strconv.Itoa(o.Tries))
	}
	if !o.At.IsZero() {
		r.query.Set("at", o.At.Format(time.RFC3339Nano))
	}
	if o.OnEnd != "" {
		r.query.Set("on_end", o.OnEnd)
	}
	if o.Moved {
		r.query.Set("moved", "1")
	}
	set("unique", o.Unique)
	for name, value := range map[string]string{"unique_key": o.UniqueKey, "on_conflict": o.OnConflict} {
		if value != "" {
			r.query.Set(name, value)
		}
	}
	if o.ID != "" {
		r.query.Set("id", o.ID)
	}
	for name, value := range o.Attributes {
		r.query.Set("attribute."+name, value)
	}
	if o.Shards != 0 {
		r.query.Set("shards", strconv.Itoa(o.Shards))
	}
	r.keyTTL = 2 * time.Minute
	if r.key == "" {
		r.key = q.newKey()
	} else {
		set("dedup", o.Dedup)
		r.keyTTL = cmp.Or(o.Dedup, r.keyTTL)
	}
	said.retried, err = q.do(ctx, r, &said)
	return said, err
}
