#!/bin/bash
# The unit tests under the address and undefined-behaviour sanitizers, and how much of the program they reach: one row
# per folder, from clang's coverage counters. A build folder of its own, without precompiled headers: a source that leans on
# them does not build here. The last line is "N passed, N failed".
#
#   bash tests/instrumented.sh [file...]     with files: their lines that no test reaches
set -uo pipefail
cd "$(dirname "$0")/.."
build=${STRIDEC_BUILD:-build}-instrumented
llvm=/usr/lib/llvm-19/bin
mkdir -p "$build"
# Its time is that of kernels, which no sanitizer sees.
left_out=(compiled_cuda)
tests=()
for folder in $(cd tests/unit && printf '%s\n' */ | tr -d /); do
  [[ " ${left_out[*]} " == *" $folder "* ]] || tests+=("test_$folder")
done
cmake -G Ninja -B "$build" -S . -DSTRIDEC_INSTRUMENT=ON -DSTRIDEC_PCH=OFF > "$build/build.log" 2>&1 && ninja -C "$build" "${tests[@]}" >> "$build/build.log" 2>&1 ||
  { tail -20 "$build/build.log"; echo "0 passed, 1 failed"; exit 1; }

# A leak at exit is the business of tests that ask for it: protobuf keeps its tables.
export ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=$llvm/llvm-symbolizer
rm -f "$build"/*.profraw
bash tests/unit.sh "$build" "${tests[@]}" > "$build/tests.log"
status=$?
echo "left out: ${left_out[*]/#/test_}"
sed '$d' "$build/tests.log"

objects=()
for test in "${tests[@]}"; do objects+=(-object "$build/$test"); done
"$llvm/llvm-profdata" merge -sparse -o "$build/coverage.profdata" "$build"/*.profraw || status=1
if [ $# -gt 0 ]; then
  "$llvm/llvm-cov" show -instr-profile "$build/coverage.profdata" "${objects[@]}" -sources "${@/#/$PWD/}" |
    grep -E '^ *[0-9]+\| +0\|' || echo "every line is reached"
  exit "$status"
fi
"$llvm/llvm-cov" export -summary-only -instr-profile "$build/coverage.profdata" "${objects[@]}" \
  -ignore-filename-regex='/(tests|usr|include/onnx)/|\.pb\.' > "$build/coverage.json" &&
python3 - "$build/coverage.json" "$PWD" <<'PYTHON' || { echo "0 passed, 1 failed"; exit 1; }
import collections, json, os, sys

rows = collections.defaultdict(lambda: [0, 0, 0, 0])
for file in json.load(open(sys.argv[1]))["data"][0]["files"]:
    path = os.path.relpath(file["filename"], sys.argv[2])
    if path.startswith(("compiler/", "runtime/", "cli/")):
        summary = file["summary"]
        for row in (rows[os.path.dirname(path)], rows["total"]):
            for i, (kind, key) in enumerate([("lines", "count"), ("lines", "covered"), ("functions", "count"), ("functions", "covered")]):
                row[i] += summary[kind][key]
total = rows.pop("total")
print(f"{'folder':32} {'lines':>8} {'covered':>8} {'functions':>10} {'covered':>8}")
for name, (lines, hit, functions, called) in [*sorted(rows.items()), ("total", total)]:
    print(f"{name:32} {lines:8} {hit / max(lines, 1):8.1%} {functions:10} {called / max(functions, 1):8.1%}")
PYTHON
tail -1 "$build/tests.log"
exit "$status"
