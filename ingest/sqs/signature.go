package sqs

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Key is an access key of a namespace. Its secret is a token of the namespace, so it has the
// limits of one, and ends as one does.
type Key struct{ Namespace, Secret string }

// credential is the Authorization header of Signature Version 4.
type credential struct{ id, date, region, headers, signature string }

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^,]+)/(\d{8})/([^/,]+)/sqs/aws4_request, *` +
	`SignedHeaders=([a-z0-9;-]+), *Signature=([0-9a-f]{64})$`)

// MaxSkew is how far the clock of a client may differ, and so for how long a request may be
// repeated by who has seen it.
const MaxSkew = 15 * time.Minute

// verify reports whether the holder of a secret has signed a request within MaxSkew. A query is
// not signed by clients that send POST, and so means that it is not theirs.
func (c *credential) verify(ctx *fasthttp.RequestCtx, body []byte, secret string,
	now time.Time) bool {
	h := &ctx.Request.Header
	date := string(h.Peek("X-Amz-Date"))
	signed, err := time.Parse("20060102T150405Z", date)
	names := strings.Split(c.headers, ";")
	if err != nil || now.Sub(signed).Abs() > MaxSkew || date[:8] != c.date ||
		!slices.Contains(names, "host") || !slices.Contains(names, "x-amz-date") ||
		len(ctx.URI().QueryString()) > 0 {
		return false
	}
	lines := []string{string(ctx.Method()), string(ctx.URI().PathOriginal()), ""}
	for _, name := range names {
		var values []string
		for _, value := range h.PeekAll(name) {
			values = append(values, string(bytes.Join(bytes.Fields(value), []byte{' '})))
		}
		lines = append(lines, name+":"+strings.Join(values, ","))
	}
	text := strings.Join(append(lines, "", c.headers, hexSum(body)), "\n")
	scope := []string{c.date, c.region, "sqs", "aws4_request"}
	text = strings.Join([]string{"AWS4-HMAC-SHA256", date, strings.Join(scope, "/"),
		hexSum([]byte(text))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(scope, text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hmac.Equal([]byte(hex.EncodeToString(key)), []byte(c.signature))
}

func hexSum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// authenticate finds who sends a request, and reads its body, of a stranger not a byte. An access
// key is found by its id, and its signature has to hold. In a namespace without access keys the id
// is one of its tokens.
func (c *call) authenticate() *failure {
	h := &c.Ctx.Request.Header
	found := authorization.FindSubmatch(h.Peek(fasthttp.HeaderAuthorization))
	if found == nil {
		return denied("MissingAuthenticationToken",
			"the request needs an Authorization header of Signature Version 4 for sqs")
	}
	text := func(i int) string { return string(found[i]) }
	c.credential = credential{text(1), text(2), text(3), text(4), text(5)}
	var rejected *ingest.Rejection
	if key, isKey := c.AccessKeys[c.id]; isKey {
		if rejected = c.readBody(); rejected != nil {
			return failureOf(rejected)
		}
		if !c.verify(c.Ctx, c.body, key.Secret, time.Now()) {
			return denied("SignatureDoesNotMatch",
				"the signature is another, or the client's clock is more than 15 minutes off")
		}
		c.namespace = key.Namespace
		c.key, rejected = c.Authenticate(key.Namespace, []byte(key.Secret))
		return failureOf(rejected)
	}
	c.namespace = c.NamespaceOf([]byte(c.id))
	if c.namespace == "" && c.OpenNames {
		c.namespace = c.id
	}
	signs := false
	for _, key := range c.AccessKeys {
		signs = signs || key.Namespace == c.namespace
	}
	known := !signs && c.engine() != nil
	if known {
		c.key, rejected = c.Authenticate(c.namespace, []byte(c.id))
		known = rejected == nil || rejected.Code != wire.CodeUnauthorized
	}
	if !known {
		return denied("InvalidClientTokenId",
			"the access key id is not one of access_keys, nor a "+
				"token of a namespace of queues without access_keys")
	}
	if rejected == nil {
		rejected = c.readBody()
	}
	return failureOf(rejected)
}

func denied(code, text string) *failure {
	return &failure{code, text, ingest.Reject(wire.CodeUnauthorized, "")}
}

// readBody reads the body as it was sent: that is what is signed.
func (c *call) readBody() (rejected *ingest.Rejection) {
	if len(c.Ctx.Request.Header.Peek(fasthttp.HeaderContentEncoding)) > 0 {
		return ingest.Reject(wire.CodeUnsupportedEncoding,
			"a body for SQS is not compressed")
	}
	c.body, rejected = c.RawBody(MaxBody)
	return rejected
}
