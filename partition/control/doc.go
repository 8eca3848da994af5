// Package control keeps what operators make at run time: namespaces of queues, their
// tokens with rates that all processes share, and tokens of the admin port.
//
// All of it is one document in Redis. A process reads what changed four times a second and
// swaps an immutable Snapshot. While Redis is away the last one stays in use. What the
// configuration file names takes precedence. DESIGN.md says more.
package control
