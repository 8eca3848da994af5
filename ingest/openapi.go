package ingest

import (
	_ "embed"

	"github.com/valyala/fasthttp"
)

// openAPI describes the data port's routes, for tools that read OpenAPI 3.1.
//
//go:embed openapi.yaml
var openAPI []byte

func (s *Server) openapi(ctx *fasthttp.RequestCtx, _ target) *rejection {
	ctx.Response.Header.SetContentType("application/yaml")
	ctx.Response.SetBody(openAPI)
	return nil
}
