package protocol

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"
)

// maxCredentials bounds the base64 of a header, in bytes.
const maxCredentials = 1 << 10

// authorizationKey is the key in the value of an Authorization header; empty: none.
//
//	Basic   the user, or the password where the user is empty
//	Bearer  the text
func authorizationKey(authorization []byte) string {
	scheme, text, _ := bytes.Cut(authorization, []byte{' '})
	text = bytes.TrimSpace(text)
	if len(text) > maxCredentials {
		return ""
	}
	switch strings.ToLower(string(scheme)) {
	case "basic":
		user, password := decodePair(text)
		return cmp.Or(user, password)
	case "bearer":
		return string(text)
	}
	return ""
}

// BasicUser is the user of Basic; the password does not count.
func BasicUser(authorization []byte) string {
	scheme, text, _ := bytes.Cut(authorization, []byte{' '})
	if !bytes.EqualFold(scheme, []byte("Basic")) || len(text) > maxCredentials {
		return ""
	}
	user, _ := decodePair(bytes.TrimSpace(text))
	return user
}

// decodePair decodes user:password in base64. Both are empty where it is none.
func decodePair(text []byte) (user, password string) {
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return "", ""
	}
	user, password, _ = strings.Cut(string(decoded), ":")
	return user, password
}
