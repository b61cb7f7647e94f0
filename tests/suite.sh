#!/bin/bash
# Runs one suite of tests/suites.txt and builds nothing: what ctest calls, with build, stridec and python set.
#
#   bash tests/suite.sh name
set -euo pipefail
cd "$(dirname "$0")/.."
command=$(sed -nE "s/^$1\|[a-z]+\|//p" tests/suites.txt)
[ -n "$command" ] || { echo "tests/suites.txt has no suite '$1'"; exit 1; }
exec bash -c "$command"
