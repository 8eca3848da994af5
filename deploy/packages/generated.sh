#!/bin/sh
# Writes what the packages have besides files of the repository: the completions that
# the program prints, and the manual page, compressed. goreleaser runs it at the root.
set -eu
out=tmp/packages
mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/spillway" ./cmd/spillway
for shell in bash zsh fish; do
	"$out/spillway" completion "$shell" >"$out/spillway.$shell"
done
rm "$out/spillway"
gzip -9nc deploy/man/spillway.1 >"$out/spillway.1.gz"
