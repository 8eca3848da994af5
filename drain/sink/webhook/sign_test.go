package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The secrets of the tests; the first one is that of the specification's test vector.
const oldSecret, newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_++//++//++//++//++//++//++//++//"

func TestSignaturesMatchThePublishedVector(t *testing.T) {
	t.Parallel()
	keys, err := parseSecrets(oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	got := signatures(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// verify is what a receiver does: it accepts a request that one of its secrets has
// signed, not long ago.
func verify(r *http.Request, body []byte, secret string) bool {
	id, sent := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age < -time.Minute || age > time.Minute {
		return false
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, id+"."+sent+".")
	h.Write(body)
	for signature := range strings.SplitSeq(r.Header.Get("webhook-signature"), " ") {
		version, mac, _ := strings.Cut(signature, ",")
		raw, err := base64.StdEncoding.DecodeString(mac)
		if version == "v1" && err == nil && hmac.Equal(raw, h.Sum(nil)) {
			return true
		}
	}
	return false
}

func TestAReceiverVerifiesEachSecret(t *testing.T) {
	t.Parallel()
	b := batch(`{"score":7}`, "text")
	for options, secrets := range map[string][]string{
		"?signing_secret=" + oldSecret:                                     {oldSecret},
		"?signing_secret=" + newSecret:                                     {newSecret}, // + as it is
		"?signing_secret=" + strings.ReplaceAll(newSecret, "+", "%2B"):     {newSecret},
		"?signing_secret=" + newSecret + "," + oldSecret:                   {newSecret, oldSecret},
		"?signing_secret=" + newSecret + "%20" + oldSecret + "&gzip=1&a=b": {newSecret, oldSecret},
		"?a=b": nil,
	} {
		posts := 0
		srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			posts++
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			for _, secret := range []string{oldSecret, newSecret} {
				want := len(secrets) > 0 && (secrets[0] == secret || secrets[len(secrets)-1] == secret)
				if got := verify(r, body, secret); got != want {
					t.Errorf("%s: verified by %s: %t, want %t", options, secret, got, want)
				}
				if verify(r, append(body, ' '), secret) {
					t.Errorf("%s: another body is verified", options)
				}
			}
			if got := r.Header.Get("webhook-id"); len(secrets) > 0 && got != b.ID() || len(secrets) == 0 && got != "" {
				t.Errorf("%s: got id %q", options, got)
			}
			if strings.Contains(r.RequestURI, "secret") {
				t.Errorf("the secret is sent: %s", r.RequestURI)
			}
		})
		if err := post(t, newSink(t, srv.URL+options), b); err != nil || posts != 1 {
			t.Errorf("%s: got %v after %d posts", options, err, posts)
		}
	}
}
