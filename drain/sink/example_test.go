package sink_test

import (
	"fmt"
	"net/url"
	"os"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/null"
)

func ExampleAppendLine() {
	b := &sink.Batch{Namespace: "default", Partition: "com.acme.kart", FirstSeq: 41, Attempt: 1, Entries: []sink.Entry{
		{Seq: 41, Occurred: 1763629675100, Payload: []byte(`{"score":7}`)},
		{Seq: 42, Occurred: 1763629675200, Payload: []byte("lap 3"), ID: []byte("order-81")},
	}}
	for i := range b.Entries {
		os.Stdout.Write(sink.AppendLine(nil, b, i))
	}
	// Output:
	// {"namespace":"default","partition":"com.acme.kart","seq":41,"ts":1763629675100,"batch":"e60dc63f723c0422dd42949e417649fb","attempt":1,"data":{"score":7}}
	// {"namespace":"default","partition":"com.acme.kart","seq":42,"ts":1763629675200,"id":"order-81","batch":"e60dc63f723c0422dd42949e417649fb","attempt":1,"text":"lap 3"}
}

func ExampleRegistry() {
	sinks := sink.Registry{
		"null": null.New,
		"mine": func(u *url.URL) (sink.Sink, error) {
			_, err := sink.Options(u, "color")
			return nil, err
		},
	}
	for _, raw := range []string{"null:", "mine://user:secret@host/?colour=red", "nul:"} {
		_, err := sinks.New(raw)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// sink mine://…@host/?…: unknown option "colour": did you mean color? known are color
	// unknown sink scheme "nul": did you mean null:? want one of mine: null:
}
