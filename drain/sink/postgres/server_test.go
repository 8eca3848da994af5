//go:build sinks

package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/proc"
)

// A server is a PostgreSQL of this test's own.
type server struct {
	*proc.Process
	tb        testing.TB
	addr, dir string
	args      []string // of postgres
}

const nobody = 65534

// command is a program of PostgreSQL. They do not run as root, so root runs them as nobody.
func command(tb testing.TB, name string, args ...string) []string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		// Debian keeps them out of PATH, a folder for each version.
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			tb.Fatalf("%s is not installed; `make test-sinks` installs it", name)
		}
		path = found[len(found)-1]
	}
	command := append([]string{path}, args...)
	if os.Getuid() == 0 {
		user := fmt.Sprint(nobody)
		command = append([]string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--pdeathsig", "KILL"}, command...)
	}
	return command
}

// startServer starts one with files of its own beside its data, and settings name=value.
func startServer(tb testing.TB, files map[string][]byte, settings ...string) *server {
	tb.Helper()
	addr, err := proc.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "spillway-postgres-") // not tb.TempDir, which only its owner may enter
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{tb: tb, addr: addr, dir: dir}
	tb.Cleanup(func() {
		if s.Process != nil {
			_ = s.Signal(syscall.SIGQUIT) // it waits for its children
			<-s.Done
		}
		_ = os.RemoveAll(dir)
	})
	s.own("")
	s.write("password", []byte("s3cret"))
	for name, text := range files {
		s.write(name, text)
	}
	for _, setting := range append([]string{"max_connections=200"}, settings...) {
		s.args = append(s.args, "-c", setting)
	}
	initdb := command(tb, "initdb", "-D", filepath.Join(dir, "data"), "-U", "owner", "-A", "scram-sha-256", "--pwfile", filepath.Join(dir, "password"), "-E", "UTF8", "--no-locale", "--no-sync")
	if text, err := exec.Command(initdb[0], initdb[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, text)
	}
	s.launch()
	return s
}

// write makes a file that only the server's user may read.
func (s *server) write(name string, text []byte) {
	s.tb.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
		s.tb.Fatal(err)
	}
	s.own(name)
}

func (s *server) own(name string) {
	s.tb.Helper()
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(filepath.Join(s.dir, name), nobody, nobody); err != nil {
		s.tb.Fatal(err)
	}
}

// launch starts the server, again after it ended, and waits until it answers.
func (s *server) launch() {
	s.tb.Helper()
	args := command(s.tb, "postgres", "-D", filepath.Join(s.dir, "data"), "-k", "", "-h", "127.0.0.1", "-p", proc.Port(s.addr))
	args = append(args, s.args...)
	var err error
	if s.Process, err = proc.Start(s.dir, "postgres", args[0], args[1:]...); err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Await(ctx, "postgres", func(ctx context.Context) error {
		conn, err := s.connect(ctx, "postgres")
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	}); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *server) connect(ctx context.Context, database string) (*pgconn.PgConn, error) {
	return connect(ctx, map[string]string{"host": "127.0.0.1", "port": proc.Port(s.addr), "user": "owner", "password": "s3cret", "database": database, "sslmode": "disable"})
}

// A database has the documented table, with changes, and a connection of the test's own.
type database struct {
	*server
	name string
	conn *pgconn.PgConn
}

func (s *server) create(tb testing.TB, name string, changes ...string) *database {
	tb.Helper()
	admin, err := s.connect(context.Background(), "postgres")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	if err := admin.Exec(context.Background(), "CREATE DATABASE "+name).Close(); err != nil {
		tb.Fatal(err)
	}
	d := &database{server: s, name: name}
	d.reconnect(tb)
	tb.Cleanup(func() { _ = d.conn.Close(context.Background()) })
	ddl, err := os.ReadFile("../../../deploy/sql/postgres.sql")
	if err != nil {
		tb.Fatal(err)
	}
	d.query(tb, strings.NewReplacer(changes...).Replace(string(ddl)))
	return d
}

func (d *database) reconnect(tb testing.TB) {
	tb.Helper()
	var err error
	if d.conn, err = d.connect(context.Background(), d.name); err != nil {
		tb.Fatal(err)
	}
}

func (d *database) ask(sql string) (rows [][]string, err error) {
	results, err := d.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		for _, row := range r.Rows {
			var fields []string
			for _, f := range row {
				fields = append(fields, string(f))
			}
			rows = append(rows, fields)
		}
	}
	return rows, nil
}

// query is ask that must succeed. It may run beside no other on the same database.
func (d *database) query(tb testing.TB, sql string) [][]string {
	tb.Helper()
	rows, err := d.ask(sql)
	if err != nil {
		tb.Fatalf("%.200s: %v", sql, err)
	}
	return rows
}

func (d *database) sink(tb testing.TB, options string) *Sink {
	tb.Helper()
	return newSink(tb, "postgres://owner:s3cret@"+d.addr+"/"+d.name+"?table=events"+options)
}

// records are the rows of a table with ts bigint, data bytea and arrival bigserial.
func (d *database) records() (list []sinktest.Record, err error) {
	rows, err := d.ask("SELECT namespace, partition, seq, ts, id, encode(data, 'hex') FROM events ORDER BY arrival")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		seq, err1 := strconv.ParseInt(r[2], 10, 64)
		occurred, err2 := strconv.ParseInt(r[3], 10, 64)
		payload, err3 := hex.DecodeString(r[5])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		rec := sinktest.Record{Namespace: r[0], Partition: r[1], Seq: seq, Occurred: occurred, Payload: payload}
		if r[4] != "" {
			rec.ID = []byte(r[4])
		}
		list = append(list, rec)
	}
	return list, nil
}

func TestTLSIsUsedAndCheckedAsTheModeSays(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "localhost")
	server := startServer(t, map[string][]byte{"cert.pem": cert, "key.pem": key}, "ssl=on", "ssl_cert_file=../cert.pem", "ssl_key_file=../key.pem")
	d := server.create(t, "game")
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	byName := "localhost:" + proc.Port(server.addr)
	for _, c := range []struct{ host, options, want string }{
		{server.addr, "", "t"},
		{server.addr, "&sslmode=disable", "f"},
		{server.addr, "&sslmode=require", "t"},
		{byName, "&sslmode=verify-full&sslrootcert=" + trusted, "t"},
		{server.addr, "&sslmode=verify-ca&sslrootcert=" + trusted, "t"},
		{server.addr, "&sslmode=verify-full&sslrootcert=" + trusted, "its certificate is not trusted"},
		{byName, "&sslmode=verify-full", "its certificate is not trusted"},
	} {
		s := newSink(t, "postgres://owner:s3cret@"+c.host+"/game?table=events"+c.options)
		got := fmt.Sprint(s.Open(t.Context()))
		if got == "<nil>" {
			got = d.query(t, "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'spillway' ORDER BY backend_start DESC LIMIT 1")[0][0]
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s%s: got %s, want %s", c.host, c.options, got, c.want)
		}
	}
}

// certificate is a self-signed one for a name, and its key.
func certificate(t *testing.T, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
