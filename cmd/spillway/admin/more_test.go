package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAnotherAPIAuthorizesByRoleAndPagesCannotWrite(t *testing.T) {
	t.Parallel()
	var s *Server
	s = setupRoles(func(v *View) {
		v.More = func(path string) http.Handler {
			if path != "/more" && path != "/open" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if path == "/open" {
					return
				}
				if name, ok := s.Authorize(w, r, Admin); ok {
					w.Header().Set("Who", name)
					s.Record(r, Act{Action: "access_log", Detail: "enable"}, nil)
				}
			})
		}
	})
	for _, c := range []struct {
		path, token, site string
		status            int
		who               string
	}{
		{"/open", "", "", 200, ""},
		{"/more", "", "", 401, ""},
		{"/more", "wrong", "", 401, ""},
		{"/more", "viewer", "", 403, ""},
		{"/more", "operator", "", 403, ""},
		{"/more", "admin", "", 200, "admin-1"},
		{"/more", "admin", "cross-site", 403, ""},
		{"/other", "admin", "", 404, ""},
		{"/other", "", "", 401, ""},
	} {
		r := httptest.NewRequest("POST", "http://127.0.0.1"+c.path, nil)
		if c.token != "" {
			r.SetBasicAuth("anyone", c.token)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Who") != c.who {
			t.Errorf("%+v: got %d, %q", c, w.Code, w.Header().Get("Who"))
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%+v: headers %v", c, w.Header())
		}
	}
	if body := send(s, "GET", "/api/v1/audit", "viewer", "").Body.String(); strings.Count(body, `"name":"admin-1","role":"admin","action":"access_log"`) != 1 {
		t.Errorf("the trail is %s", body)
	}
}
