package app

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
)

func TestSDKsAreSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	const file = `
segment_prefix: /collect
namespaces:
  default: {}
  kart:
    write_keys: [kart-web, "7", {key: "8", rate: 100/s}]
    partition_paths: [properties.game]
    partition_fallback: other
`
	c, err := loadConfig(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	in := c.Ingest()
	want := map[string]ingest.SDK{
		"default": {}, // not inherited
		"kart":    {WriteKeys: []ingest.WriteKey{{Key: "kart-web"}, {Key: "7"}, {Key: "8", Rate: ingest.Quota{Count: 100, Per: time.Second}}}, PartitionPaths: []string{"properties.game"}, PartitionFallback: "other"},
	}
	if !reflect.DeepEqual(in.SDKs, want) || !in.NamespaceKeys || in.SegmentPrefix != "/collect" {
		t.Errorf("got %+v %t %s", in.SDKs, in.NamespaceKeys, in.SegmentPrefix)
	}
	if c, err := loadConfig(t, []string{"--listen=:8080", "--insecure-no-auth"}, nil, file); err != nil || c.Ingest().NamespaceKeys {
		t.Errorf("a namespace's name is a key on other addresses than loopback: %v", err)
	}
	out, stderr, code := runCommand(t, nil, "", "config", "print", "--config", c.File)
	if code != exitOK {
		t.Fatal(stderr)
	}
	again, stderr, code := runCommand(t, nil, "", "config", "print", "--config", writeFile(t, "again.yaml", out))
	for _, part := range []string{"- kart-web\n", "- \"7\"\n", "- {key: \"8\", rate: 100/s}\n", "- properties.game\n", "partition_fallback: other # "} {
		if code != exitOK || !strings.Contains(again, part) {
			t.Errorf("%q is missing in\n%s%s", part, stderr, again)
		}
	}
}

func TestErrorsOfSDKSettingsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"  a:\n    write_keys: [k]\n  b:\n    write_keys: [k]\n": "5: namespaces.b.write_keys: k is not usable: want another key, because namespace a lists this one",
		"  a: {write_keys: [k, k]}\n":                            "2: namespaces.a.write_keys: k is not usable: want another key, because namespace a lists this one",
		"  a: {write_keys: []}\n":                                "2: namespaces.a.write_keys: not a list, or empty: ",
		"  a: {write_keys: k}\n":                                 "2: namespaces.a.write_keys: not a list, or empty: ",
		"  a: {write_keys: [7]}\n":                               "2: namespaces.a.write_keys: not text: write it in quotes",
		"  a: {write_keys: [\"a b\"]}\n":                         "2: namespaces.a.write_keys: \"a b\" is not usable: want 1 to 256 printable characters without spaces",
		"  a: {write_keys: [{rate: 1/s}]}\n":                     "2: namespaces.a.write_keys: \"\" is not usable: want 1 to 256 printable characters without spaces",
		"  a: {write_keys: [{key: k, rate: 5}]}\n":               "2: namespaces.a.write_keys[0].rate: \"5\" is not a quota",
		"  a: {write_keys: [j, {key: [k]}]}\n":                   "2: namespaces.a.write_keys[1].key: not text",
		"  a: {write_keys: [{key: k, rat: 5/s}]}\n":              "2: namespaces.a.write_keys[0].rat: ",
		"  a: {partition_paths: [a..b]}\n":                       "2: namespaces.a.partition_paths: [\"a..b\"] is not usable: want at most 8 paths",
		"  a: {partition_fallback: a/b}\n":                       "2: namespaces.a.partition_fallback: a/b is not usable: want a partition's name",
		"  a: {partition_fallback: [a]}\n":                       "2: namespaces.a.partition_fallback: not text",
	} {
		c, err := loadConfig(t, nil, nil, "namespaces:\n"+file)
		if err == nil {
			t.Errorf("%q is accepted", file)
			continue
		}
		got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
		if !strings.HasPrefix(got, "spillway.yaml:"+want) {
			t.Errorf("%q: got  %s\nwant spillway.yaml:%s", file, got, want)
		}
	}
	path := writeFile(t, "hides.yaml", "segment_prefix: /\nnamespaces: {batch: {}}\n")
	if _, stderr, code := runCommand(t, nil, "", "config", "check", "--config", path); code != exitUsage || !strings.Contains(stderr, "segment_prefix") {
		t.Errorf("got %d %s", code, stderr)
	}
}
