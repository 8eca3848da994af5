package protocol

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// maxCredentials bounds the base64 of a header, in bytes.
const maxCredentials = 1 << 10

// AuthorizationKey is the key in the value of an Authorization header, which each vendor
// writes in a way of its own; empty: none.
//
//	Basic       the user, or the password where the user is empty
//	ApiKey      the text, or the id of id:secret in base64
//	Bearer, Splunk   the text
//	AWS4-HMAC-SHA256  the id of Credential=; the signature does not count
func AuthorizationKey(authorization []byte) string {
	scheme, text, _ := bytes.Cut(authorization, []byte{' '})
	text = bytes.TrimSpace(text)
	if len(text) > maxCredentials {
		return ""
	}
	user, password, decoded := decodePair(text)
	switch strings.ToLower(string(scheme)) {
	case "basic":
		if user == "" {
			return password
		}
		return user
	case "apikey":
		if decoded {
			return user
		}
		return string(text)
	case "bearer", "splunk":
		return string(text)
	case "aws4-hmac-sha256":
		_, credential, _ := bytes.Cut(text, []byte("Credential="))
		id, _, _ := bytes.Cut(credential, []byte{'/'})
		return string(id)
	}
	return ""
}

// BasicUser is the user of Basic; the password does not count.
func BasicUser(authorization []byte) string {
	scheme, text, _ := bytes.Cut(authorization, []byte{' '})
	if !bytes.EqualFold(scheme, []byte("Basic")) || len(text) > maxCredentials {
		return ""
	}
	user, _, _ := decodePair(bytes.TrimSpace(text))
	return user
}

// decodePair decodes user:password in base64. paired: there is a colon.
func decodePair(text []byte) (user, password string, paired bool) {
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(decoded), ":")
}
