#!/bin/sh
# Builds the image's whole root file system into a folder: two static programs and the
# trusted certificates. The Containerfile copies it unchanged, and a test starts a
# scanner in it. So the test and the image have the same files.
#   deploy/container/rootfs.sh /out
# `scanner version` prints VERSION and COMMIT, which come from the environment here.
# Without them it prints the source's release, and the commit if Go finds it in .git. An
# image build has no .git.
set -eu
out=$1
cli=github.com/duefleet/duefleet/internal/cli
cd "$(dirname "$0")/../.."

mkdir -p "$out/etc/ssl/certs" "$out/etc/duefleet"
cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X $cli.version=${VERSION:-} -X $cli.commit=${COMMIT:-}" -o "$out/" ./cmd/scanner ./cmd/producer
