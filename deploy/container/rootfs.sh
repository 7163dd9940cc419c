#!/bin/sh
# Builds the whole root file system of the image into a folder: two static
# programs and the certificates to trust. The container file takes it as it is,
# and a test starts a scanner in it, so that both know the same image.
#   deploy/container/rootfs.sh /out
# VERSION and COMMIT, of the environment, are what `scanner version` prints; without them
# it is what Go finds in .git, which a build of the image has not.
set -eu
out=$1
cli=github.com/duefleet/duefleet/internal/cli
cd "$(dirname "$0")/../.."

mkdir -p "$out/etc/ssl/certs" "$out/etc/duefleet"
cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X $cli.version=${VERSION:-} -X $cli.commit=${COMMIT:-}" -o "$out/" ./cmd/scanner ./cmd/producer
