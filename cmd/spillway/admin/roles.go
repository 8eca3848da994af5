package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
)

// A Role is what a token may do. Each includes those before it.
type Role int

const (
	probe    Role = iota // no token
	Viewer               // figures, tables, drops, pauses, the audit trail, namespaces and their tokens' names
	Operator             // payloads, masked; pause, resume, replay; respawn, delete and purge of jobs
	Admin                // purge, delete of entries, reload, namespaces, tokens, payloads without masks, profiles
)

var roleNames = [...]string{Viewer: "viewer", Operator: "operator", Admin: "admin"}

func (r Role) String() string { return roleNames[r] }

// UnmarshalText reads viewer, operator or admin.
func (r *Role) UnmarshalText(text []byte) error {
	for role := Viewer; role <= Admin; role++ {
		if roleNames[role] == string(text) {
			*r = role
			return nil
		}
	}
	return fmt.Errorf("%q is not a role: write viewer, operator or admin", text)
}

// A Token lets a request in, under its name and with its role.
type Token struct {
	Name string // 1 to 64 letters, digits, dots, dashes and underscores
	Role Role
	Hash [sha256.Size]byte // of the token
}

// identity is who sends a request.
type identity struct {
	name string
	role Role
}

// anonymous may do everything: no token is configured, which needs a listener on loopback.
var anonymous = identity{"anonymous", Admin}

// identify finds the token of a request. It compares with every token in constant time.
func identify(r *http.Request, tokens []Token) (who identity, ok bool) {
	if len(tokens) == 0 {
		return anonymous, true
	}
	sum := sha256.Sum256([]byte(bearerOrPassword(r)))
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(sum[:], t.Hash[:]) == 1 {
			who, ok = identity{t.Name, t.Role}, true
		}
	}
	return who, ok
}

// bearerOrPassword is the token of a request; empty unless there is exactly one
// Authorization header. Browsers can ask for a password, of any user.
func bearerOrPassword(r *http.Request) string {
	if len(r.Header.Values("Authorization")) != 1 {
		return ""
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}
