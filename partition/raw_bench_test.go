package partition_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// A flush of one lane through the store and go-redis, beside the same scripts
// on a connection of its own that nothing stands between: one write of RESP made
// beforehand, replies read by the line. What the two differ by is all that an own
// client could save.
func BenchmarkFlush(b *testing.B) {
	for _, groups := range []int{1, 5, 50} {
		server := redistest.Start(b)
		s, err := partition.Open(partition.Config{
			URL: server.URL(), Prefix: "sw", Namespaces: map[string]partition.Policy{"default": partition.DefaultPolicy()},
		}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
		now, _ := s.Now()
		entry := partition.AppendEntry(nil, now, nil, []byte(strings.Repeat("x", 200)))
		var flush []*partition.Group
		var raw bytes.Buffer
		for i := range groups {
			name := fmt.Sprint("p", i)
			flush = append(flush, &partition.Group{Namespace: s.Namespace("default"), Partition: name, Entries: [][]byte{entry}})
			args := []string{"EVALSHA", lua.Produce.SHA, "4", "sw:{default.0}:q:" + name, "sw:{default.0}:ready", "sw:{default.0}:m:" + name,
				"sw:{default.0}:ledger", name, "10000", "128", "1000", "100000", "86400000", "0", string(entry)}
			fmt.Fprintf(&raw, "*%d\r\n", len(args))
			for _, arg := range args {
				fmt.Fprintf(&raw, "$%d\r\n%s\r\n", len(arg), arg)
			}
		}
		b.Run(fmt.Sprintf("scripts=%d/store", groups), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Produce(b.Context(), flush)
				if err := flush[groups-1].Err; err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("scripts=%d/raw", groups), func(b *testing.B) {
			b.ReportAllocs()
			conn, err := net.DialTimeout("tcp", server.Client().Options().Addr, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			for b.Loop() {
				if _, err := conn.Write(raw.Bytes()); err != nil {
					b.Fatal(err)
				}
				for range groups * 6 { // an array of five integers
					line, err := answers.ReadSlice('\n')
					if err != nil || line[0] == '-' {
						b.Fatalf("%q, %v", line, err)
					}
				}
			}
		})
	}
}
