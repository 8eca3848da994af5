// Package lmstfy is the HTTP API of lmstfy over Spillway's queues, so that programs
// written for lmstfy work without a change. API answers the requests of the data port,
// below /api/. Admin answers those of the admin port: tokens, limits, pools. DESIGN.md
// tells what is different on purpose.
package lmstfy
