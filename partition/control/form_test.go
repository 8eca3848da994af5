package control

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// What is made at run time is kept in this form for ever.
func TestTheFormOfEntries(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread, policy.DropDead, policy.ReplyTTL = 4, map[string]int{"bulk": 4}, true, time.Minute
	policy.MaxSchedules = 7
	for _, c := range []struct {
		entry interface {
			entry() string
			encode() string
		}
		name, want string
	}{
		{
			&Namespace{Name: "mail", Pool: "fast", Description: "of the shop", Policy: policy, CreatedMS: 5, CreatedBy: "alice"}, "ns:mail",
			`{"kind":"queue","pool":"fast","description":"of the shop","shards":4,"spread":{"bulk":4},"max_jobs":10000000,"max_queues":10000,"max_schedules":7,"dead":"drop","reply_ttl":"1m0s","created_ms":5,"created_by":"alice"}`,
		},
		{
			&Token{Namespace: "mail", Hash: HashToken("a"), Name: "crm", Description: "d", Produce: partition.Rate{Count: 1000, Per: time.Minute}, Limit: &Limit{1, 2, 3}, CreatedMS: 5},
			"token:mail:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"crm","description":"d","produce":"1000/min","limit":{"read":1,"write":2,"interval":3},"created_ms":5}`,
		},
		{
			&Token{Namespace: "mail", Hash: HashToken("a"), Name: "ca978112", Text: "a", CreatedMS: 5},
			"token:mail:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"ca978112","text":"a","created_ms":5}`,
		},
		{
			&Admin{Name: "alice", Role: "viewer", Hash: HashToken("a"), CreatedMS: 5, CreatedBy: "root"},
			"admin:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
			`{"name":"alice","role":"viewer","created_ms":5,"created_by":"root"}`,
		},
	} {
		if c.entry.entry() != c.name || c.entry.encode() != c.want {
			t.Errorf("got %s\n%s\nwant %s\n%s", c.entry.entry(), c.entry.encode(), c.name, c.want)
		}
		if got, err := decodeEntry(c.name, c.want); err != nil || !reflect.DeepEqual(got, c.entry) {
			t.Errorf("read again: got %+v, %v, want %+v", got, err, c.entry)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	hash := strings.Repeat("0f", 32)
	f.Add("ns:mail", `{"kind":"queue","pool":"default","shards":2,"spread":{"q":2},"max_jobs":1,"max_queues":1,"dead":"keep","reply_ttl":"10m0s","created_ms":1}`)
	f.Add("token:mail:"+hash, `{"name":"a","produce":"10/s","limit":{"read":1,"write":0,"interval":1},"created_ms":1}`)
	f.Add("admin:"+hash, `{"name":"a","role":"viewer","created_ms":-1}`)
	f.Add("token::"+hash, `{}`)
	f.Add("ns:x", `{"kind":"queue","spread":{"a":1e9},"reply_ttl":"1ns"}`)
	f.Add("other:x", "null")
	f.Fuzz(func(t *testing.T, name, value string) {
		e, err := decodeEntry(name, value)
		if err != nil {
			return
		}
		again := e.(interface {
			entry() string
			encode() string
		})
		if again.entry() != name {
			t.Errorf("%q is read as %q", name, again.entry())
		}
		if twice, err := decodeEntry(name, again.encode()); err != nil || !reflect.DeepEqual(twice, e) {
			t.Errorf("%s %s: read again %+v, %v, want %+v", name, value, twice, err, e)
		}
		d := &document{version: 1, values: map[string]string{name: value}, entries: map[string]any{name: e}}
		s := newSnapshot(d, &File{Admins: []Admin{{Name: "root"}}})
		if used := len(s.Namespaces()) + len(s.byHash) + len(s.Admins()) - 1 + len(s.Ignored); used != 1 {
			t.Errorf("%q is used or told %d times", name, used)
		}
	})
}
