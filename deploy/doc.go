// Package deploy holds what runs Spillway elsewhere: an image, a compose file,
// an example configuration, and the documents for operators. Its tests hold those,
// the other documents, the Makefile and the direction of imports to what the code
// really does.
package deploy
