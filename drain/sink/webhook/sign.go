package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const secretPrefix = "whsec_"

// Sizes of a secret in bytes, by the specification.
const minSecret, maxSecret = 24, 64

// parseSecrets reads the secrets of the Standard Webhooks scheme: "whsec_" and base64,
// one or more with a comma or a space between. Its errors show none of it.
func parseSecrets(text string) (keys [][]byte, err error) {
	for secret := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		encoded, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			return nil, errors.New("want whsec_ and base64; several with a comma between")
		}
		if len(key) < minSecret || len(key) > maxSecret {
			return nil, fmt.Errorf("a secret of %d bytes, want %d to %d", len(key), minSecret, maxSecret)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("is empty: want whsec_ and base64")
	}
	return keys, nil
}

// signatures is the value of webhook-signature by https://www.standardwebhooks.com:
// for each key, v1 and the HMAC-SHA256 of "id.seconds.body".
func signatures(keys [][]byte, id string, at time.Time, body []byte) string {
	var list []string
	for _, key := range keys {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		h.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(list, " ")
}
