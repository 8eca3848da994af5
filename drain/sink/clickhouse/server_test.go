//go:build sinks

package clickhouse

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/proc"
)

// A server is a clickhouse-server of this test's own, with the documented table.
type server struct {
	*proc.Process
	tb        testing.TB
	addr, dir string
}

const serverConfig = `<yandex>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host><http_port>%s</http_port><timezone>UTC</timezone>
<path>%[2]s/data/</path><tmp_path>%[2]s/tmp/</tmp_path>
<users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>67108864</mark_cache_size>
</yandex>`

const serverUsers = `<yandex>
<profiles><default/><reader><readonly>1</readonly></reader></profiles><quotas><default/></quotas>
<users>
<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>
<reader><password>s3cret</password><networks><ip>127.0.0.1</ip></networks><profile>reader</profile><quota>default</quota></reader>
</users></yandex>`

func startServer(tb testing.TB) *server {
	tb.Helper()
	addr, err := proc.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{tb: tb, addr: addr, dir: tb.TempDir()}
	for name, text := range map[string]string{"config.xml": fmt.Sprintf(serverConfig, proc.Port(addr), s.dir), "users.xml": serverUsers} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	s.launch()
	tb.Cleanup(func() { s.Kill() })
	ddl, err := os.ReadFile("../../../deploy/sql/clickhouse.sql")
	if err != nil {
		tb.Fatal(err)
	}
	s.query(string(ddl))
	return s
}

// launch starts the server, again after Kill, and waits until it answers.
func (s *server) launch() {
	s.tb.Helper()
	path, err := exec.LookPath("clickhouse-server")
	if err != nil {
		s.tb.Fatalf("clickhouse-server is not installed; `make test-sinks` installs it: %v", err)
	}
	if s.Process, err = proc.Start(s.dir, "clickhouse", path, "--config-file="+filepath.Join(s.dir, "config.xml")); err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Await(ctx, "clickhouse-server", func(context.Context) error { _, err := s.ask("SELECT 1"); return err }); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *server) ask(sql string) ([]byte, error) {
	resp, err := http.Post("http://"+s.addr+"/?output_format_json_quote_64bit_integers=0", "", bytes.NewReader([]byte(sql)))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", sql, text)
	}
	return text, err
}

// query is ask that must succeed; the answer has no line break at its end.
func (s *server) query(sql string) string {
	s.tb.Helper()
	text, err := s.ask(sql)
	if err != nil {
		s.tb.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// url is that of the sink.
func (s *server) url(options string) string {
	return "clickhouse://" + s.addr + "/default?table=events" + options
}

// records reads the table as it is, without FINAL: repeats that were not merged show.
func (s *server) records() (list []sinktest.Record, err error) {
	text, err := s.ask("SELECT namespace, partition, seq, ts, id, hex(data) AS data FROM events ORDER BY partition, seq FORMAT JSONEachRow")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		payload, err := hex.DecodeString(r.Data)
		if err != nil {
			return nil, err
		}
		list = append(list, sinktest.Record{Namespace: r.Namespace, Partition: r.Partition, Seq: r.Seq, Occurred: r.TS, ID: []byte(r.ID), Payload: payload})
	}
	return list, nil
}
