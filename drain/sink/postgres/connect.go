package postgres

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// fromOutside are settings that pgconn would take from the environment, or from files of the
// home directory, where the connection string does not have them. Nothing outside cmd reads those.
var fromOutside = map[string]string{
	"application_name": "spillway", "passfile": "", "connect_timeout": "5", "sslcert": "", "sslkey": "", "sslcertmode": "allow",
	"sslsni": "1", "sslpassword": "", "sslnegotiation": "postgres", "target_session_attrs": "any", "servicefile": "",
	"options": "", "min_protocol_version": "", "max_protocol_version": "", "channel_binding": "prefer", "require_auth": "",
}

// errSettings: pgconn rejects the settings. What New did not check of them is the file.
var errSettings = errors.New("sslrootcert is not a file of certificates")

// maxAnswer bounds a message of the server, in bytes: memory is taken for what it announces. Most
// have some 100; one of a trigger can repeat a payload.
const maxAnswer = 16 << 20

// connect makes a connection with the settings and nothing else.
func connect(ctx context.Context, settings map[string]string) (*pgconn.PgConn, error) {
	all := maps.Clone(fromOutside)
	maps.Copy(all, settings)
	var text strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text.WriteString(name + "='" + escape.Replace(all[name]) + "' ")
	}
	config, err := pgconn.ParseConfig(text.String())
	if err != nil {
		return nil, errSettings // the text of err has the whole string
	}
	config.RuntimeParams = map[string]string{"application_name": "spillway", "client_encoding": "UTF8"}
	config.ConnectTimeout = 5 * time.Second
	config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxAnswer)
		return f
	}
	return pgconn.ConnectConfig(ctx, config)
}
