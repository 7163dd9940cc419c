#!/bin/sh
# Builds the whole root file system of the image into a folder: two static
# programs and the certificates to trust. The container file takes it as it is,
# and a test starts a scanner in it, so that both know the same image.
#   deploy/container/rootfs.sh /out
set -eu
out=$1
cd "$(dirname "$0")/../.."

mkdir -p "$out/etc/ssl/certs" "$out/etc/duefleet"
cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$out/" ./cmd/scanner ./cmd/producer
