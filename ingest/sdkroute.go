package ingest

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/amplitude"
	"github.com/spillway-io/spillway/ingest/protocol/cloudevents"
	"github.com/spillway-io/spillway/ingest/protocol/mixpanel"
	"github.com/spillway-io/spillway/ingest/protocol/otlp"
	"github.com/spillway-io/spillway/ingest/protocol/posthog"
	"github.com/spillway-io/spillway/ingest/protocol/segment"
	"github.com/spillway-io/spillway/ingest/protocol/snowplow"
)

// sdkProtocol is a protocol of other vendors' SDKs. It is a door.
type sdkProtocol struct {
	prefix string // of its paths, with / at both ends
	// native begins the paths that its clients know beside those below prefix, without a / before
	// it; empty: none.
	native  string
	adapter protocol.Adapter
	routes  []sdkRoute
}

// sdkRoute is a route for some calls of a protocol: what follows its prefix, without a / at
// the end.
type sdkRoute struct {
	route
	calls []string
}

// takes is a route whose events are in the body.
func takes(name, pattern string, calls ...string) sdkRoute {
	return sdkRoute{route{name, fasthttp.MethodPost, pattern, nil}, calls}
}

// asks is a route whose events are in the query.
func asks(name, pattern string, calls ...string) sdkRoute {
	return sdkRoute{route{name, fasthttp.MethodGet, pattern, nil}, calls}
}

var sdkProtocols = []sdkProtocol{
	{"/segment/v1/", "", segment.Adapter{}, []sdkRoute{
		takes("segment", "/segment/v1/{call}", "batch", "track", "identify", "page", "screen", "group", "alias",
			"b", "t", "i", "p", "s", "g", "a"), // the letters are what pages send
	}},
	{"/posthog/", "", posthog.Adapter{}, []sdkRoute{
		takes("posthog", "/posthog/{call}/", "batch", "capture", "e"),
		takes("posthog_e", "/posthog/i/v0/e/", "i/v0/e"),
	}},
	{"/amplitude/", "", amplitude.Adapter{}, []sdkRoute{
		takes("amplitude", "/amplitude/2/httpapi", "2/httpapi"),
		takes("amplitude_batch", "/amplitude/batch", "batch"),
	}},
	{"/otlp/", "", otlp.Adapter{}, []sdkRoute{takes("otlp", "/otlp/v1/logs", "v1/logs")}},
	{"/cloudevents/", "", cloudevents.Adapter{}, []sdkRoute{takes("cloudevents", "/cloudevents", "")}},
	{"/mixpanel/", "", mixpanel.Adapter{}, []sdkRoute{
		takes("mixpanel", "/mixpanel/{call}", "track", "engage", "groups", "import"),
		asks("mixpanel_get", "/mixpanel/{call}"),
	}},
	{"/snowplow/", "com.snowplowanalytics.snowplow/", snowplow.Adapter{}, []sdkRoute{
		takes("snowplow", "/snowplow/com.snowplowanalytics.snowplow/tp2", "com.snowplowanalytics.snowplow/tp2"),
		asks("snowplow_pixel", "/snowplow/i", "i"),
	}},
}

// sdkRoutes are the rows of all protocols, with one for the preflights of each path.
func sdkRoutes() (all []route) {
	for i := range sdkProtocols {
		p := &sdkProtocols[i]
		for _, r := range p.routes {
			r.door = p
			all = append(all, r.route)
			if r.method == fasthttp.MethodPost {
				all = append(all, route{"preflight_" + r.name, fasthttp.MethodOptions, r.pattern, p})
			}
		}
	}
	return all
}

// callOf is what follows the prefix of a protocol in a path, without a / at the end.
func (p *sdkProtocol) callOf(path []byte) (call string, below bool) {
	rest, below := bytes.CutPrefix(path, []byte(p.prefix))
	switch {
	case below:
	case string(path) == p.prefix[:len(p.prefix)-1]:
		return "", true
	case p.native == "" || !bytes.HasPrefix(path[min(1, len(path)):], []byte(p.native)):
		return "", false
	default:
		rest = path[1:]
	}
	return string(bytes.TrimSuffix(rest, []byte{'/'})), true
}

// pattern is that of a call; empty: there is no such call.
func (p *sdkProtocol) pattern(call string) string {
	for i := range p.routes {
		if slices.Contains(p.routes[i].calls, call) {
			return p.routes[i].route.pattern
		}
	}
	return ""
}

// sdkOf finds the protocol of a path, with or without a slash at its end, its call and the pattern
// of its route, which is empty where there is no such call. nil: it is of none.
func sdkOf(path []byte) (p *sdkProtocol, call, pattern string) {
	for i := range sdkProtocols {
		p = &sdkProtocols[i]
		if call, below := p.callOf(path); below {
			return p, call, p.pattern(call)
		}
	}
	return nil, "", ""
}
