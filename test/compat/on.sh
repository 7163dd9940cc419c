#!/usr/bin/env bash
# Runs a command on servers of another Debian suite, which it unpacks if they aren't there.
#   test/compat/on.sh CACHE PAIR COMMAND [ARG...]
# A pair is a suite and a store, as in sid-valkey. CACHE keeps the suites between runs.
set -euo pipefail
cache=$1 pair=$2
shift 2
dir=$cache/${pair%-*}-$(cksum <test/compat/suite.sh | cut -d ' ' -f 1)
test/compat/suite.sh "${pair%-*}" "$dir"
DUEFLEET_TEST_SERVERS=$dir/${pair#*-} exec "$@"
