package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/partition/drops"
)

func ask(method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestThePageAndItsFilesAreServed(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/":                                    "text/html; charset=utf-8",
		"/console/main.js":                     "text/javascript; charset=utf-8",
		"/console/style.css":                   "text/css; charset=utf-8",
		"/console/lib/preact/preact.mjs":       "text/javascript; charset=utf-8",
		"/console/lib/preact/LICENSE":          "text/plain; charset=utf-8",
		"/console/lib/uplot/uPlot.min.css":     "text/css; charset=utf-8",
		"/console/lib/uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8",
		"/console/lib/htm/htm.module.js?a=b":   "text/javascript; charset=utf-8",
	} {
		w := ask(http.MethodGet, target)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != want || w.Body.Len() == 0 {
			t.Errorf("%s: got %d, %q, %d B; want 200, %q", target, w.Code, got, w.Body.Len(), want)
		}
	}
}

func TestABrowserAsksForAllModulesAtOnce(t *testing.T) {
	t.Parallel()
	link := ask(http.MethodGet, "/").Header().Get("Link")
	for _, of := range regexp.MustCompile(`<([^>]*)>; rel=modulepreload`).FindAllStringSubmatch(link, -1) {
		if w := ask(http.MethodGet, "/"+of[1]); w.Code != http.StatusOK || w.Header().Get("Link") != "" {
			t.Errorf("%s: got %d, Link %q", of[1], w.Code, w.Header().Get("Link"))
		}
	}
	for _, module := range []string{"main.js", "drawer/trace.js", "lib/preact/preact.mjs"} {
		if !strings.Contains(link, "<console/"+module+">") {
			t.Errorf("%s is not in %s", module, link)
		}
	}
	if strings.Contains(link, "uPlot") {
		t.Error("a script is asked for as a module, and again as itself")
	}
}

func TestWhatIsNotOfThePageIsRejected(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/console/", "/console/index.html", "/console", "/console/lib/", "/console/../console.go", "/api/v1/info", "/x"} {
		if w := ask(http.MethodGet, target); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", target, w.Code)
		}
	}
	if w := ask(http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	if w := ask(http.MethodHead, "/"); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: got %d, %d B; want 200 and none", w.Code, w.Body.Len())
	}
}

func TestABrowserThatHasAFileGetsItNotAgain(t *testing.T) {
	t.Parallel()
	etag := ask(http.MethodGet, "/console/main.js").Header().Get("Etag")
	if w := ask(http.MethodGet, "/console/main.js", "If-None-Match", etag); etag == "" || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("Etag %q: got %d, %d B; want 304 and none", etag, w.Code, w.Body.Len())
	}
}

func TestEachAnswerHasThePolicy(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/", "/console/main.js", "/console/icon.svg"} {
		header := ask(http.MethodGet, target).Header()
		got := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(got, "default-src 'self';") || strings.Contains(got, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got the policy %q", target, got)
		}
	}
}

// The policy would block these; a browser says so only in its own log.
func TestNothingInThePageNeedsWhatThePolicyForbids(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)\son[a-z]+\s*=\s*["']|\sstyle\s*=\s*["']|<style|<script(?:>| [^>]*>[^<])|javascript:`)
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function|import\(`)
	outside := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]`)
	for name, f := range load() {
		ours := !strings.HasPrefix(name, "lib/")
		switch ext := path.Ext(name); {
		case ours && ext != "" && outside.MatchString(f.content) && name != "icon.svg":
			t.Errorf("%s names another host: %q", name, outside.FindString(f.content))
		case ours && inline.MatchString(f.content):
			t.Errorf("%s has an inline script, style or handler: %q", name, inline.FindString(f.content))
		case ours && unsafe.MatchString(f.content):
			t.Errorf("%s makes HTML or code of a string: %q", name, unsafe.FindString(f.content))
		case strings.Contains(f.content, "@import") || ext == ".css" && strings.Contains(f.content, "url("):
			t.Errorf("%s loads more files", name)
		}
	}
}

var scripts = regexp.MustCompile(`<script [^>]*src="console/([^"]+)"`)

var modules = regexp.MustCompile(`(?m)^(?:import|export) (?:.* from )?"([^"]+)";$`)

func TestEachModuleImportsFilesThatExist(t *testing.T) {
	t.Parallel()
	files := load()
	used := map[string]bool{}
	for _, m := range scripts.FindAllStringSubmatch(files["index.html"].content, -1) {
		used[m[1]] = true
		if _, ok := files[m[1]]; !ok {
			t.Errorf("index.html loads %s, which is no file of the page", m[1])
		}
	}
	for name, f := range files {
		if ext := path.Ext(name); strings.HasPrefix(name, "lib/") || ext != ".js" {
			continue
		}
		for _, m := range modules.FindAllStringSubmatch(f.content, -1) {
			imported := path.Join(path.Dir(name), m[1])
			used[imported] = true
			if _, ok := files[imported]; !ok || !strings.HasPrefix(m[1], ".") {
				t.Errorf("%s imports %s, which is no file of the page", name, m[1])
			}
		}
	}
	for name := range files {
		if ext := path.Ext(name); (ext == ".js" || ext == ".mjs") && !used[name] {
			t.Errorf("nothing loads %s", name)
		}
	}
}

func TestTheFilesOfOthersAreThosePublished(t *testing.T) {
	t.Parallel()
	files := load()
	listed := map[string]bool{"lib/VERSIONS": true}
	for line := range strings.Lines(files["lib/VERSIONS"].content) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Fatalf("got the line %q, want a sum, a file and a version", line)
		}
		name := "lib/" + fields[1]
		listed[name] = true
		sum := sha256.Sum256([]byte(files[name].content))
		if hex.EncodeToString(sum[:]) != fields[0] {
			t.Errorf("%s is not the file of %s", name, fields[2])
		}
	}
	for name := range files {
		if strings.HasPrefix(name, "lib/") && !listed[name] {
			t.Errorf("VERSIONS leaves out %s", name)
		}
	}
	for _, lib := range []string{"preact", "htm", "uplot"} {
		if !listed["lib/"+lib+"/LICENSE"] {
			t.Errorf("%s has no licence", lib)
		}
	}
}

func TestEachReasonOfADropIsExplained(t *testing.T) {
	t.Parallel()
	text := load()["drawer/drops.js"].content
	for _, reason := range drops.Reasons() {
		if !strings.Contains(text, "\n  "+string(reason)+": \"") {
			t.Errorf("the page does not say why an entry is dropped as %s", reason)
		}
	}
}
