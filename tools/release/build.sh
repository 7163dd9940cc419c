#!/usr/bin/env bash
# Builds what a release consists of into a folder: for each architecture an archive with
# two static programs, a list of their modules (SBOM, CycloneDX) for each program, and the
# checksums of all.
#   tools/release/build.sh SBOM_TOOL VERSION FOLDER ARCHITECTURE...
set -euo pipefail
sbom=$1 version=$2 out=$3
shift 3
cd "$(dirname "$0")/../.."
cli=github.com/duefleet/duefleet/internal/cli
commit=$(git describe --exclude '*' --always --abbrev=40 --dirty)
time=$(git log -1 --format=%ct)

rm -rf "$out"
mkdir -p "$out"
for arch in "$@"; do
	name=duefleet_${version}_linux_$arch
	mkdir "$out/$name"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath \
		-ldflags "-s -w -X $cli.version=$version -X $cli.commit=$commit" -o "$out/$name/" ./cmd/scanner ./cmd/producer
	cp README.md CHANGELOG.md config.example.yaml "$out/$name/"
	for program in scanner producer; do
		"$sbom" bin -json -notimestamp -noserial -version "v$version" \
			-output "$out/${name}_$program.cdx.json" "$out/$name/$program" 2>/dev/null
	done
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -C "$out" -czf "$out/$name.tar.gz" "$name"
	rm -r "${out:?}/$name"
	echo "$out/$name.tar.gz"
done
(cd "$out" && sha256sum -- *.tar.gz *.cdx.json >SHA256SUMS)
