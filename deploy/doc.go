// Package deploy holds what runs Spillway elsewhere: an image, a compose file,
// an example configuration. Its tests hold those, the README, the Makefile and
// the direction of imports to what the code really does.
package deploy
