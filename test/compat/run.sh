#!/usr/bin/env bash
# Runs tests and the demo on servers of other Debian suites, and prints a table. It exits
# with 1 if anything failed.
#   test/compat/run.sh CACHE LOGS GOTESTSUM PAIR... -- PACKAGE...
# A pair is a suite and a store, as in sid-valkey. CACHE keeps the suites between runs.
set -euo pipefail
cache=$1 logs=$2 gotestsum=$3
shift 3
pairs=()
while [ "$1" != -- ]; do
	pairs+=("$1")
	shift
done
shift
mkdir -p "$logs"

# quietly runs a command in the background, so that a signal to this script reaches it.
child=
trap 'kill -TERM $child 2>/dev/null; wait $child; exit 1' INT TERM
quietly() {
	"$@" >>"$log" 2>&1 &
	child=$!
	wait $child
}

rows=() failed=0
for pair in "${pairs[@]}"; do
	log=$logs/compat-$pair.log
	: >"$log"
	on=(test/compat/on.sh "$cache" "$pair")
	began=$SECONDS result=
	echo "compat: $pair: the tests; $log has their output"
	quietly "${on[@]}" withservers -- "$gotestsum" --no-color --format standard-quiet -- -count 1 -p 1 -timeout 30m "$@" ||
		result+='tests failed '
	echo "compat: $pair: the demo"
	quietly "${on[@]}" bin/demo || result+='demo failed'
	[ -z "$result" ] || { failed=1; tail -n 60 "$log"; }
	versions=$(sed -n 's/^withservers: \(.*\), \(RabbitMQ .*\)/\1 | \2/p' "$log")
	tests=$(sed -n 's/^DONE \(.*\) in .*/\1/p' "$log")
	rows+=("| $pair | ${versions:-? | ?} | ${tests:-?} | $((SECONDS - began)) | ${result:-passed} |")
done
printf '%s\n' '' '| pair | store | broker | tests | seconds | result |' '|---|---|---|---|---|---|' "${rows[@]}"
exit $failed
