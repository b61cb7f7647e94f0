#!/bin/bash
# The runtime and its unit tests under ThreadSanitizer: eight threads on a model, contexts and pools that come and go, errors
# beside runs. Without the tests that fork or load an artifact, whose code is not instrumented. A build folder of its own.
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
export build=${STRIDEC_BUILD:-build}-threads launcher=$(command -v ccache)
mkdir -p "$build"
rm -f "$build"/*.o

compile() {
  local source=$1 flags=(-std=c++20 -O1 -g1 -fsanitize=thread -I. -Iruntime/include)
  case $source in runtime/*) flags+=(-fno-exceptions -fno-rtti -fno-threadsafe-statics) ;; esac
  $launcher clang++-19 "${flags[@]}" -c "$source" -o "$build/${source//\//_}.o"
}
export -f compile
sources=(runtime/src/*.cpp tests/unit/main.cpp)
for name in fake_programs model races run tensor threads warm_up; do sources+=(tests/unit/runtime/$name.cpp); done
{
  printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c 'compile "$1"' _ {} &&
    clang++-19 -fsanitize=thread "$build"/*.o -o "$build/test_threads"
} > "$build/build.log" 2>&1 || { tail -20 "$build/build.log"; echo "0 passed, 1 failed"; exit 1; }

export TSAN_OPTIONS=external_symbolizer_path=/usr/lib/llvm-19/bin/llvm-symbolizer
"$build/test_threads" > "$build/tests.log" 2>&1
status=$?
numbers=$(sed -nE 's/^\[doctest\] test cases: *[0-9]+ \| *([0-9]+) passed \| *([0-9]+) failed.*/\1 \2/p' "$build/tests.log")
read -r passed failed <<< "${numbers:-0 1}"
failed=$((failed + $(grep -c '^WARNING: ThreadSanitizer' "$build/tests.log")))
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
[ "$failed" = 0 ] || head -150 "$build/tests.log"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
