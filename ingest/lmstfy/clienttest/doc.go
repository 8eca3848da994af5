// Package clienttest plays lmstfy's own Go client, and requests by hand, against Spillway
// and against a real lmstfy: both answer alike. It is a module of its own, so that nobody who
// uses Spillway gets lmstfy's dependencies.
package clienttest
