package transform

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol/lineartest"
	"github.com/spillway-io/spillway/ingest/wire"
)

func TestEachStepDoesWhatItSays(t *testing.T) {
	t.Parallel()
	deep := `{"a":` + strings.Repeat("[", wire.MaxDepth) + strings.Repeat("]", wire.MaxDepth) + `}`
	const event = `{"event":"lap","user":{"email":"a@b.c","id":7,"ok":true,"none":null,"tags":["x"]}, "n" : 1.50}`
	for name, tt := range map[string]struct {
		steps []Step
		in    string // empty: event
		want  string // or the reason
	}{
		"nothing":                       {nil, "", event},
		"drop_if equals":                {[]Step{{DropIf: &Condition{Path: "event", Equals: "lap"}}}, "", "filtered"},
		"drop_if of another text":       {[]Step{{DropIf: &Condition{Path: "event", Equals: "la"}}}, "", event},
		"drop_if contains":              {[]Step{{DropIf: &Condition{Path: "user.email", Contains: "@b"}}}, "", "filtered"},
		"drop_if both, one holds":       {[]Step{{DropIf: &Condition{Path: "event", Equals: "lap", Contains: "x"}}}, "", event},
		"drop_if a path is there":       {[]Step{{DropIf: &Condition{Path: "user.tags"}}}, "", "filtered"},
		"drop_if no such path":          {[]Step{{DropIf: &Condition{Path: "user.nobody"}}}, "", event},
		"drop_if a number":              {[]Step{{DropIf: &Condition{Path: "n", Equals: "1.50"}}}, "", "filtered"},
		"drop_if a boolean":             {[]Step{{DropIf: &Condition{Path: "user.ok", Equals: "true"}}}, "", "filtered"},
		"drop_if of an object":          {[]Step{{DropIf: &Condition{Path: "user", Contains: "email"}}}, "", event},
		"drop_if of an escaped text":    {[]Step{{DropIf: &Condition{Path: "e", Equals: "lap"}}}, `{"\u0065":"l\u0061p"}`, "filtered"},
		"drop_if of the last of two":    {[]Step{{DropIf: &Condition{Path: "e", Equals: "b"}}}, `{"e":"a","e":"b"}`, "filtered"},
		"keep":                          {[]Step{{Keep: []string{"user.id", "event"}}}, "", `{"event":"lap","user":{"id":7}}`},
		"keep of what is not there":     {[]Step{{Keep: []string{"user.nobody", "event.x", "event"}}}, "", `{"event":"lap"}`},
		"keep of nothing":               {[]Step{{Keep: []string{"nobody"}}}, "", "emptied"},
		"keep of an object within":      {[]Step{{Keep: []string{"user"}}}, `{"a":1,"user":{"b": [1, 2]}}`, `{"user":{"b": [1, 2]}}`},
		"remove":                        {[]Step{{Remove: []string{"user.email", "n", "nobody"}}}, "", `{"event":"lap","user":{"id":7,"ok":true,"none":null,"tags":["x"]}}`},
		"remove of each of two":         {[]Step{{Remove: []string{"m"}}}, `{"m":1,"a":2,"m":3}`, `{"a":2}`},
		"remove of an escaped key":      {[]Step{{Remove: []string{"mail"}}}, `{"m\u0061il":1,"a":2}`, `{"a":2}`},
		"remove of all":                 {[]Step{{Remove: []string{"a"}}}, `{"a":1}`, "emptied"},
		"an empty object stays":         {[]Step{{Remove: []string{"a"}}}, `{}`, `{}`},
		"remove passes arrays":          {[]Step{{Remove: []string{"a.b"}}}, `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`},
		"rename":                        {[]Step{{Rename: &Rename{"user.id", "uid"}}}, `{"user":{"id":7}}`, `{"user":{"uid":7}}`},
		"rename onto another":           {[]Step{{Rename: &Rename{"a", "b"}}}, `{"b":1,"a":2,"c":3}`, `{"b":2,"c":3}`},
		"rename of nothing":             {[]Step{{Rename: &Rename{"a", "b"}}}, `{"b":1}`, `{"b":1}`},
		"rename with an escape":         {[]Step{{Rename: &Rename{"a", `"`}}}, `{"a":1}`, `{"\"":1}`},
		"mask with stars":               {[]Step{{Mask: &Mask{Paths: []string{"user.email", "user.tags", "user.none"}, As: "stars"}}}, `{"user":{"email":"a","tags":[1],"none":null}}`, `{"user":{"email":"***","tags":"***","none":null}}`},
		"mask with a hash":              {[]Step{{Mask: &Mask{Paths: []string{"a", "b"}, As: "hash"}}}, `{"a":"x","b":"\u0078"}`, `{"a":"2e9c9952acc7126aad86f3f81568cfff","b":"2e9c9952acc7126aad86f3f81568cfff"}`},
		"set":                           {[]Step{{Set: &Set{"user.id", "x"}}}, `{"user":{"id":7}}`, `{"user":{"id":"x"}}`},
		"set of what is not there":      {[]Step{{Set: &Set{"a.b.c", true}}}, `{"x":1}`, `{"x":1,"a":{"b":{"c":true}}}`},
		"set where there is no object":  {[]Step{{Set: &Set{"a.b", 1.5}}}, `{"a":[1]}`, `{"a":{"b":1.5}}`},
		"set in an empty object":        {[]Step{{Set: &Set{"a", 1}}}, `{}`, `{"a":1}`},
		"steps are in order":            {[]Step{{Rename: &Rename{"a", "b"}}, {Set: &Set{"a", 2}}, {Remove: []string{"b"}}}, `{"a":1}`, `{"a":2}`},
		"what is no object passes":      {[]Step{{Keep: []string{"a"}}}, `[1]`, "opaque"},
		"what is no JSON passes":        {[]Step{{Set: &Set{"a", 1}}}, `{"a":1`, "opaque"},
		"deeper than is read passes":    {[]Step{{Set: &Set{"a", 1}}}, deep, "opaque"},
		"what is no JSON is not kept":   {[]Step{{Keep: []string{"a"}}}, `{"a":1`, "unreadable"},
		"nothing to remove in no JSON":  {[]Step{{Remove: []string{"a"}}}, "\x00{\"a\":1}", "unreadable"},
		"nothing to mask in a deep one": {[]Step{{Set: &Set{"b", 1}}, {Mask: &Mask{Paths: []string{"a"}, As: "stars"}}}, deep, "unreadable"},
		"nothing to mask in no entry":   {[]Step{{Mask: &Mask{Paths: []string{"a"}, As: "stars"}}}, " ", "unreadable"},
		"white space around it":         {[]Step{{Remove: []string{"b"}}}, " \r\n\t{\"a\":1,\"b\":2}\n", `{"a":1}`},
		"a byte order mark before it":   {[]Step{{Remove: []string{"b"}}}, "\ufeff {\"a\":1,\"b\":2}", `{"a":1}`},
		"an empty one with white space": {[]Step{{Remove: []string{"a"}}}, ` {}`, `{}`},
		"a text that is like an object": {[]Step{{Keep: []string{"a"}}}, `"{}"`, "opaque"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of, err := New("kart", tt.steps)
			if err != nil {
				t.Fatal(err)
			}
			in := tt.in
			if in == "" {
				in = event
			}
			var buffers Buffers
			for range 2 { // with memory that was used
				r := of.Apply(&buffers, []byte(in))
				got := string(r.Data)
				switch {
				case r.Opaque && got == in:
					got = "opaque"
				case r.Dropped != "":
					got = string(r.Dropped)
				case !json.Valid(r.Data):
					t.Errorf("%s is no JSON", got)
				}
				if got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			}
		})
	}
}

func TestAPartitionIsTheFirstPathThatHasOne(t *testing.T) {
	t.Parallel()
	of, err := New("kart", []Step{{PartitionPaths: []string{"game", "user.id"}}, {Remove: []string{"user"}}})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{`{"game":"a b"}`: "a-b", `{"user":{"id":7},"x":1}`: "7", `{"x":1}`: "", `{"game":"","user":{"id":"u"},"x":1}`: "u"} {
		if r := of.Apply(&Buffers{}, []byte(in)); r.Partition != want || r.Dropped != "" {
			t.Errorf("%s: got %+v", in, r)
		}
	}
}

func TestASampleKeepsItsShare(t *testing.T) {
	t.Parallel()
	of, err := New("kart", []Step{{Sample: &Sample{Condition{Path: "event", Equals: "frame"}, "10%"}}})
	if err != nil {
		t.Fatal(err)
	}
	kept, others := 0, 0
	var buffers Buffers
	for range 20_000 {
		if r := of.Apply(&buffers, []byte(`{"event":"frame"}`)); r.Dropped == "" {
			kept++
		} else if r.Dropped != wire.ReasonSampled {
			t.Fatalf("got %+v", r)
		}
		if of.Apply(&buffers, []byte(`{"event":"lap"}`)).Dropped == "" {
			others++
		}
	}
	if kept < 1500 || kept > 2500 || others != 20_000 { // twelve standard deviations
		t.Errorf("%d of 20,000 were kept, and %d of the others", kept, others)
	}
}

func TestMistakesInStepsAreNamed(t *testing.T) {
	t.Parallel()
	many := make([]Step, MaxSteps+1)
	long := strings.Repeat("x", 300)
	for want, steps := range map[string][]Step{
		"it has 33 steps, and 32 are the most": many,
		"step 1: want one of drop_if":          {{}},
		"step 2: want one of drop_if":          {{Keep: []string{"a"}}, {Keep: []string{"a"}, Remove: []string{"b"}}},
		"not a path":                           {{DropIf: &Condition{Equals: "a"}}},
		"not a path such as":                   {{Keep: []string{}}},
		"step 1: not a path":                   {{Remove: []string{"a..b"}}},
		"step 1: not a path such":              {{PartitionPaths: []string{}}},
		"keep: \"\": want more than 0%":        {{Sample: &Sample{}}},
		"keep: \"NaN%\": want":                 {{Sample: &Sample{Keep: "NaN%"}}},
		"keep: \"100%\": want":                 {{Sample: &Sample{Keep: "100%"}}},
		"keep: \"10\": want":                   {{Sample: &Sample{Keep: "10"}}},
		"equals and contains have":             {{DropIf: &Condition{Path: "a", Equals: long}}},
		"rename: to is a key without dots":     {{Rename: &Rename{"a", "b.c"}}},
		"mask: as is hash or stars":            {{Mask: &Mask{Paths: []string{"a"}}}},
		"and key is of hash":                   {{Mask: &Mask{Paths: []string{"a"}, As: "stars", Key: "k"}}},
		"mask: key has 256 bytes":              {{Mask: &Mask{Paths: []string{"a"}, As: "hash", Key: long}}},
		"set: value is a text":                 {{Set: &Set{"a", nil}}},
		"set: value has 256 bytes":             {{Set: &Set{"a", long}}},
	} {
		if _, err := New("kart", steps); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAllocsOfStepsAreNoneOnceThereIsMemory(t *testing.T) { // alone, as AllocsPerRun wants
	of, err := New("kart", []Step{{DropIf: &Condition{Path: "event", Equals: "ping"}}, {Remove: []string{"user.email"}}, {Mask: &Mask{Paths: []string{"user.id"}, As: "stars"}}})
	if err != nil {
		t.Fatal(err)
	}
	var buffers Buffers
	event := []byte(`{"event":"lap","user":{"email":"a@b.c","id":7}}`)
	if n := testing.AllocsPerRun(100, func() { of.Apply(&buffers, event) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// An object may repeat a key as often as it has room: a step must not look through all of it for each.
func TestStepsAreLinearInTheBytesOfAnEntry(t *testing.T) {
	t.Parallel()
	long := "a.a.a.a.a.a.a.a"
	for name, step := range map[string]Step{
		"drop_if":         {DropIf: &Condition{Path: long, Equals: "x"}},
		"sample":          {Sample: &Sample{Condition{Path: long}, "10%"}},
		"keep":            {Keep: []string{long, "b.b.b"}},
		"remove":          {Remove: []string{long, "b"}},
		"rename":          {Rename: &Rename{"a", "b"}},
		"rename below":    {Rename: &Rename{long, "b"}},
		"mask":            {Mask: &Mask{Paths: []string{long, "b"}, As: "hash"}},
		"set":             {Set: &Set{long, "x"}},
		"partition_paths": {PartitionPaths: []string{long, "b.b", "a"}},
	} {
		of, err := New("kart", []Step{step})
		if err != nil {
			t.Fatal(err)
		}
		for _, member := range []string{`"a":1`, `"b":1`, `"\u0062":1`, `"a":{"a":{"a":1}}`, `"b":"\\\\"`, `"a":[[]]`} {
			lineartest.Check(t, name+" of "+member, func(size int) func() {
				entry := []byte(`{"a":1` + strings.Repeat(","+member, size) + `}`)
				var buffers Buffers
				return func() { of.Apply(&buffers, entry) }
			})
		}
	}
}

func FuzzWhatIsChangedStaysJSON(f *testing.F) {
	of, err := New("kart", []Step{{Rename: &Rename{"a.b", "c"}}, {Mask: &Mask{Paths: []string{"a.c", "d"}, As: "hash"}}, {Set: &Set{"a.e", "x"}}, {Remove: []string{"f"}}, {Keep: []string{"a", "d", "g"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"a":{"b":1},"d":"x","f":{},"g":[1]}`))
	f.Add([]byte("{\"a\":{\"\\u0062\":1,\"b\":2}, \"d\":null}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r := of.Apply(&Buffers{}, data); json.Valid(data) && !json.Valid(r.Data) {
			t.Errorf("%q became %q", data, r.Data)
		}
	})
}
