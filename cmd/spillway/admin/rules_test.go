package admin

import (
	"fmt"
	"strings"
	"testing"
)

func TestRulesAreMadeListedAndDeleted(t *testing.T) {
	t.Parallel()
	c := newControlled(t)
	c.post("namespaces/filed/rules", `{"match":"crm-*","rate":"50/s","burst":50}`, 200)
	c.post("namespaces/filed/rules", `{"match":"crm-eu","tries":9}`, 200)
	c.post("namespaces/filed/rules", `{"match":"crm-*","rate":"none"}`, 200)
	w := send(c.Server, "GET", "/api/v1/control/namespaces/filed/rules", "viewer", "")
	if want := `{"rules":[{"match":"crm-eu","rate":"","burst":0,"tries":9,`; !strings.HasPrefix(w.Body.String(), want) ||
		!strings.Contains(w.Body.String(), `{"match":"crm-*","rate":"none","burst":0,"tries":0,`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	for body, want := range map[string]string{
		`{"match":"a b","tries":1}`:             "match",
		`{"match":"a","rate":"0"}`:              "write a rate such as 50/s",
		`{"match":"a","rate":"0/s"}`:            "write a rate such as 50/s",
		`{"match":"a","rate":"1000001/s"}`:      "write a rate such as 50/s",
		`{"match":"a"}`:                         "says nothing",
		`{"match":"a","burst":3}`:               "beside a rate",
		`{"match":"a","rate":"5/s","x":1}`:      "x",
		`{"match":"a","tries":65536}`:           "1 to 65535",
		`{"match":"","rate":"5/s"}`:             "match",
		`{"match":"a","rate":"5/s","burst":-1}`: "1 to 10000",
	} {
		if got := c.post("namespaces/filed/rules", body, 400); !strings.Contains(fmt.Sprint(got["message"]), want) {
			t.Errorf("%s: got %v, want %s", body, got["message"], want)
		}
	}
	c.post("namespaces/filed/rules/delete", `{"match":"crm-*"}`, 200)
	if got := c.post("namespaces/filed/rules/delete", `{"match":"crm-*"}`, 404); got["error"] != "no_such_rule" {
		t.Errorf("got %v", got)
	}
	c.post("namespaces/nowhere/rules", `{"match":"a","tries":1}`, 404)
	c.post("namespaces/buffer/rules", `{"match":"a","tries":1}`, 404)
	if w := send(c.Server, "POST", "/api/v1/control/namespaces/filed/rules", "viewer", `{"match":"a","tries":1}`); w.Code != 403 {
		t.Errorf("a viewer: got %d", w.Code)
	}
	if w := send(c.Server, "POST", "/api/v1/control/namespaces/filed/rules", "operator", `{"match":"a","tries":1}`); w.Code != 200 {
		t.Errorf("an operator: got %d %s", w.Code, w.Body)
	}
}
