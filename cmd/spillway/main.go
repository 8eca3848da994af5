// Spillway is a batch-oriented, per-partition, fixed-length buffer service on
// Redis. `spillway serve` runs it; `spillway --help` lists the rest.
package main

import "github.com/spillway-io/spillway/cmd/spillway/app"

func main() { app.Main() }
