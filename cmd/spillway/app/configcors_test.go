package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOriginsAreThoseOfTheirNamespace(t *testing.T) {
	t.Parallel()
	const file = `
namespaces:
  kart: {cors_origins: ["https://kart.example", "http://localhost:5173"]}
  chess: {cors_origins: "*"}
  go: {cors_origins: ["*"]}
  default: {}
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"kart": {"https://kart.example", "http://localhost:5173"}, "chess": {"*"}, "go": {"*"}, "default": nil}
	if got := c.ingest().CORSOrigins; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", path)
	if code != exitOK || !strings.Contains(out, `['https://kart.example', 'http://localhost:5173']`) || !strings.Contains(out, `cors_origins: ['*']`) {
		t.Errorf("got %d %s\n%s", code, stderr, out)
	}
	again, err := loadConfig(t, nil, nil, out)
	if err != nil || fmt.Sprint(again.ingest().CORSOrigins) != fmt.Sprint(want) {
		t.Errorf("what is printed reads as %v, %v", again.ingest().CORSOrigins, err)
	}
}

func TestOriginErrorsNameLineAndSayWhatToWrite(t *testing.T) {
	t.Parallel()
	const notAList = `not a list: write ["https://game.example"], or "*" for every page`
	tests := []struct{ name, file, want string }{
		{"a path", `cors_origins: ["https://kart.example/"]`, `3: namespaces.kart.cors_origins[0]: "https://kart.example/" is not an origin as browsers send it: write "https://kart.example"`},
		{"a wildcard", "cors_origins:\n      - https://a.example\n      - https://*.example", `5: namespaces.kart.cors_origins[1]: "https://*.example": a part of an origin cannot be a *: list each origin, or write "*" alone to allow every page`},
		{"no scheme", "cors_origins: [kart.example]", `3: namespaces.kart.cors_origins[0]: "kart.example" is not an origin: write scheme://host or scheme://host:port, such as https://game.example`},
		{"no list", "cors_origins: https://kart.example", "3: namespaces.kart.cors_origins: " + notAList},
		{"no value", "cors_origins:", "3: namespaces.kart.cors_origins: " + notAList},
		{"an empty list", "cors_origins: []", `3: namespaces.kart.cors_origins: empty list: write ["https://game.example"], or "*" for every page, or remove the key to allow no page`},
		{"a number", "cors_origins: [5]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"a list in it", "cors_origins: [[https://a.example]]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"twice", "cors_origins: [https://a.example, https://a.example]", "3: namespaces.kart.cors_origins[1]: duplicate origin, first on line 3: remove one"},
		{"all and one", `cors_origins: ["*", https://a.example]`, `3: namespaces.kart.cors_origins[0]: "*" beside other origins: remove either`},
		{"at the top", "sink: \"null:\"\ncors_origins: \"*\"", "4: cors_origins: unknown key: each namespace has its own: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, nil, nil, "namespaces:\n  kart:\n    "+tt.file+"\n")
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
			if !strings.HasPrefix(got, "spillway.yaml:"+tt.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant spillway.yaml:%s", got, tt.want)
			}
		})
	}
}
