package webhook

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestFurtherHeadersAreSent(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	s := newSink(t, srv.URL+"/?header.x-team=kart&header.Authorization=Bearer%20t0k3n%2B/%3D&header.X-Empty=&header.X-Text=a+b%09gr%C3%BC%C3%9Fe")
	for range 2 {
		if err := post(t, s, batch("1")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"X-Team": "kart", "Authorization": "Bearer t0k3n+/=", "X-Empty": "", "X-Text": "a b\tgrüße", "Content-Type": "application/x-ndjson",
		} {
			if values := got.Values(name); len(values) != 1 || values[0] != want {
				t.Errorf("%s: got %q, want %q", name, values, want)
			}
		}
	}
}

func TestOptionErrorsShowNoValue(t *testing.T) {
	t.Parallel()
	registry := sink.Registry{"http": New}
	const (
		short = "a2V5MWtleTFrZXkx" // 12 bytes
		form  = "signing_secret: want whsec_ and base64; several with a comma between"
	)
	for query, want := range map[string]string{
		"signing_secret":                                                "signing_secret: is empty: want whsec_ and base64",
		"signing_secret=,%20":                                           "signing_secret: is empty: want whsec_ and base64",
		"signing_secret=hunter2":                                        form,
		"signing_secret=whsec_hunter2":                                  form,
		"signing_secret=whsk_" + strings.Repeat(short, 2):               form,
		"signing_secret=whsec_" + strings.Repeat(short, 2) + ",hunter2": form,
		"signing_secret=whsec_" + short:                                 "signing_secret: a secret of 12 bytes, want 24 to 64",
		"signing_secret=whsec_" + strings.Repeat(short, 6):              "signing_secret: a secret of 72 bytes, want 24 to 64",
		"signing_secret=hunter2%zz":                                     "signing_secret: invalid URL escape",
		"signing-secret=" + oldSecret:                                   "a parameter for the receiver holds a whsec_ secret: the option of the sink is signing_secret",
		"signing%5Fsecret=%77hsec_hunter2":                              "a parameter for the receiver holds a whsec_ secret: the option of the sink is signing_secret",
		"signing_secret=a&signing_secret=b":                             "",
		"gzp=1":                                                         `unknown option "gzp": did you mean gzip? For a parameter of the receiver, escape its first letter: %67`,
		"Signing_Secret=hunter2":                                        `unknown option "Signing_Secret": did you mean signing_secret? For a parameter of the receiver, escape its first letter: %53`,
		"haeder.X-Team=hunter2":                                         `unknown option "haeder.X-Team": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %68`,
		"header-X-Team=hunter2":                                         `unknown option "header-X-Team": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %68`,
		"Header.Authorization:hunter2":                                  `unknown option "Header.Authorization": did you mean header.NAME? For a parameter of the receiver, escape its first letter: %48`,
		"header.X-A=hunter2%0d%0aX-B:1":                                 `option "header.X-A": a header's value has no line breaks or other control characters`,
		"header.X-A=hunter2%00":                                         `option "header.X-A": a header's value has no line breaks or other control characters`,
		"header.X-A=hunter2%zz":                                         `option "header.X-A": invalid URL escape`,
		"header.=hunter2":                                               `option "header.": not the name of a header: write header.X-Team=kart`,
		"header.X%20A=hunter2":                                          `option "header.X%20A": not the name of a header: write header.X-Team=kart`,
		"header.X:A=hunter2":                                            `option "header.X:A": not the name of a header: write header.X-Team=kart`,
		"header.X-A=hunter2&header.x-a=1":                               `option "header.x-a": X-A is given twice`,
		"header.X-A=hunter2&header.X-A=1":                               `option "header.X-A" is given twice`,
		"header.content-type=hunter2":                                   `option "header.content-type": the sink sets Content-Type itself`,
		"header.Idempotency-Key=hunter2":                                `option "header.Idempotency-Key": the sink sets Idempotency-Key itself`,
		"header.X-PARTITION=hunter2":                                    `option "header.X-PARTITION": the sink sets X-Partition itself`,
		"header.webhook-signature=hunter2":                              `option "header.webhook-signature": the sink sets Webhook-Signature itself`,
		"header.Host=hunter2":                                           `option "header.Host": the sink sets Host itself`,
		"header.Transfer-Encoding=chunked":                              `option "header.Transfer-Encoding": the sink sets Transfer-Encoding itself`,
	} {
		_, err := registry.New("http://h/?" + query)
		if err == nil || strings.Contains(err.Error(), "hunter2") || want != "" && err.Error() != "sink http://h/?…: "+want {
			t.Errorf("%s:\ngot  %v\nwant %s", query, err, want)
		}
	}
	if _, err := registry.New("http://u:p@h/?header.Authorization=x"); err == nil || err.Error() != `sink http://…@h/?…: option "header.Authorization": the URL has a user already` {
		t.Errorf("got %v", err)
	}
}

func TestParametersOfTheReceiverStay(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"token=x", "%67zp=1", "%68eader-x=1", "header=1", "headerless=1", "size=1", "sign=1", "zone=gz"} {
		if rest, _, err := takeOptions(query); err != nil || rest != query {
			t.Errorf("%s: got %q and %v", query, rest, err)
		}
	}
}
