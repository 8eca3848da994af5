package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-io/spillway/drain/sink"
)

// texts are our words for what an operator has to mend. The server's own go into dead letters
// only: they quote values of rows.
var texts = map[string]string{
	"28P01": "the password is wrong", "28000": "the user may not connect", "3D000": "the database does not exist", "3F000": "the schema does not exist",
	"42P01": "the table does not exist: deploy/sql/postgres.sql makes one", "42703": "a column is missing",
	"42501": "the user lacks a right: INSERT, SELECT and TEMPORARY are needed",
	"42P10": "the table has no unique index on (namespace, partition, seq)", "42804": "a column has another type", "25006": "the server only reads",
	"53300": "too many connections", "53100": "its disk is full",
}

// outcome says what an error of the connection asks of the drain, by its SQLSTATE.
//
//	22, 23, 54, P0            data, a constraint, a limit, a trigger that raises: Permanent;
//	                          the drain bisects
//	28, 3D, 3F, 42, 25006     user, database, schema, table, column, right; a standby: the
//	                          entries are good and the fault can be mended. ErrNotConnected, Unsent
//	53                        connections, disk, memory: Throttle for 1 s
//	anything else             plain: serialization, deadlock, shutdown, no answer
func outcome(ctx context.Context, err error) error {
	var rejected *pgconn.PgError
	var column *typeError
	switch {
	case errors.As(err, &rejected):
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &column):
		return fmt.Errorf("%w: %w", column, sink.ErrNotConnected)
	default:
		return brief(err)
	}
	code := rejected.Code
	said := fmt.Errorf("SQLSTATE %.5s", strings.ToValidUTF8(code, "?"))
	switch {
	case texts[code] != "":
		said = fmt.Errorf("%w: %s", said, texts[code])
	case strings.HasPrefix(code, "23") && rejected.ConstraintName != "":
		said = fmt.Errorf("%w: constraint %.64q", said, rejected.ConstraintName) // of the schema, not of a row
	}
	switch class := code[:min(2, len(code))]; {
	case class == "22" || class == "23" || class == "54" || class == "P0":
		return sink.Permanent(sink.WithDetail(said, rejected.Message))
	case class == "28" || class == "3D" || class == "3F" || class == "42" || code == "25006":
		return sink.Unsent(fmt.Errorf("%w: %w", said, sink.ErrNotConnected)) // the transaction is rolled back
	case class == "53":
		return sink.Throttle(said, time.Second)
	}
	return said
}

// brief is an error of the connection without user, database and what the peer sent.
func brief(err error) error {
	var network *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return errors.New("its certificate is not trusted")
	case errors.As(err, &network) && network.Err != nil:
		return fmt.Errorf("%s: %w", network.Op, network.Err)
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return errors.New("the server has no TLS: sslmode=disable goes without")
	case errors.Is(err, errSettings):
		return errSettings
	}
	return errors.New("the connection broke")
}
