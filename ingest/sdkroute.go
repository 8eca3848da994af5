package ingest

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/amplitude"
	"github.com/spillway-io/spillway/ingest/protocol/posthog"
	"github.com/spillway-io/spillway/ingest/protocol/segment"
	"github.com/spillway-io/spillway/partition"
)

// sdkProtocols are the protocols of other vendors' SDKs, with the pattern of the route
// of each call.
var sdkProtocols = []struct {
	prefix   string
	adapter  protocol.Adapter
	patterns map[string]string
}{
	{"/segment/v1/", segment.Adapter{}, map[string]string{
		"batch": patternSegment, "track": patternSegment, "identify": patternSegment, "page": patternSegment,
		"screen": patternSegment, "group": patternSegment, "alias": patternSegment,
		// What pages send.
		"b": patternSegment, "t": patternSegment, "i": patternSegment, "p": patternSegment,
		"s": patternSegment, "g": patternSegment, "a": patternSegment,
	}},
	{"/posthog/", posthog.Adapter{}, map[string]string{
		"batch": patternPostHog, "capture": patternPostHog, "e": patternPostHog, "i/v0/e": patternPostHogE,
	}},
	{"/amplitude/", amplitude.Adapter{}, map[string]string{
		"2/httpapi": patternAmplitude, "batch": patternAmplitudeBatch,
	}},
}

const (
	patternSegment        = "/segment/v1/{call}"
	patternPostHog        = "/posthog/{call}/"
	patternPostHogE       = "/posthog/i/v0/e/"
	patternAmplitude      = "/amplitude/2/httpapi"
	patternAmplitudeBatch = "/amplitude/batch"
)

// parseSDKPath finds the route of an SDK's path, with or without a slash at its end. Of
// an unknown call it sets the adapter alone, so that 404 has the protocol's form.
func (t *target) parseSDKPath(path []byte) (pattern string, found bool) {
	for i := range sdkProtocols {
		p := &sdkProtocols[i]
		call, below := bytes.CutPrefix(path, []byte(p.prefix))
		if !below && i == 0 && t.segmentPrefix != "" {
			call, below = bytes.CutPrefix(path, []byte(t.segmentPrefix))
		}
		if !below {
			continue
		}
		t.call = string(bytes.TrimSuffix(call, []byte{'/'}))
		if pattern, found = p.patterns[t.call]; found || bytes.HasPrefix(path, []byte(p.prefix)) {
			t.adapter = p.adapter
		}
		return pattern, found
	}
	return "", false
}

var segmentPrefixForm = regexp.MustCompile(`^(/|(/[A-Za-z0-9_-]+)+)?$`)

func validSegmentPrefix(prefix string) bool {
	return len(prefix) <= 128 && segmentPrefixForm.MatchString(prefix)
}

// segmentRoutePrefix is what comes before a call: /collect gives /collect/v1/.
func segmentRoutePrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	return strings.TrimSuffix(prefix, "/") + "/v1/"
}

// checkSegmentPrefix rejects a prefix that hides a route of a namespace, such as / where
// there is a namespace called batch, or one that is another protocol's.
func checkSegmentPrefix(cfg Config, known func(namespace string) bool) error {
	prefix := segmentRoutePrefix(cfg.SegmentPrefix)
	if prefix == "" {
		return nil
	}
	for call := range sdkProtocols[0].patterns {
		path := []byte(prefix + call)
		var t target
		_, _ = t.parsePath(path, path)
		name, _, _ := bytes.Cut(t.path, []byte{'/'})
		if len(name) > 0 && known(string(name)) {
			return &partition.FieldError{Field: "segment_prefix", Value: cfg.SegmentPrefix,
				Want: "a prefix that leaves the routes of namespace " +
					string(name) + " alone: " + string(path) + " is one of them"}
		}
	}
	return nil
}
