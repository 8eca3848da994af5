#!/bin/sh
# Builds what a release has, of the last commit, into a folder: archives of five platforms
# with an SBOM each, .deb and .rpm, the chart, the packages of the client libraries, and
# checksums.txt. With the same tools the same commit gives the same bytes. It needs
# goreleaser, cyclonedx-gomod, and what clients.sh needs.
#
#   deploy/packages/release.sh tmp/release
#
# It works in a clone with the tag of the release: so the binaries say that version, and
# nothing but what is committed gets in.
set -eu
umask 022
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
tag=v$(sed -n 's/^version: //p' deploy/helm/spillway/Chart.yaml)
for other in $(git tag --points-at HEAD 'v*'); do
	[ "$other" = "$tag" ] || { echo "The tag is $other, the packages are of $tag." >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/spillway"
cd "$work/spillway"
git tag -f "$tag" >/dev/null
goreleaser release --clean --skip=publish,announce --config .github/goreleaser.yaml
rm -f "$out"/*
deploy/packages/clients.sh "$out"
cd tmp/dist
find . -maxdepth 1 -type f -name 'spillway*' -exec cp {} "$out" \;
cd "$out"
sha256sum ./* | sed 's: \./: :' >"$work/checksums.txt"
mv "$work/checksums.txt" .
ls -l
