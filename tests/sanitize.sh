#!/bin/bash
# The unit tests of everything that parses, of the interpreter, the passes and the runtime under the address and
# undefined-behaviour sanitizers, in a build folder of their own. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
build=${STRIDEC_BUILD:-build}-sanitize
mkdir -p "$build"
cmake -G Ninja -B "$build" -S . -DSTRIDEC_SANITIZE=ON > "$build/configure.log" 2>&1 && ninja -C "$build" unit_tests ||
  { tail -20 "$build/configure.log"; echo "0 passed, 1 failed"; exit 1; }

# A leak at exit is the business of tests that ask for it: protobuf keeps its tables.
export ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-19/bin/llvm-symbolizer
passed=0 failed=0
for test in "$build"/test_*; do
  [ -x "$test" ] && [ ! -d "$test" ] || continue
  output=$("$test" 2>&1)
  status=$?
  numbers=$(sed -nE 's/^\[doctest\] test cases: *[0-9]+ \| *([0-9]+) passed \| *([0-9]+) failed.*/\1 \2/p' <<< "$output")
  read -r p f <<< "${numbers:-0 1}"
  [ "$status" = 0 ] || { echo "== $(basename "$test")"; tail -60 <<< "$output"; [ "$f" != 0 ] || f=1; }
  passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
