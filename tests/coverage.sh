#!/bin/bash
# How much of the compiler and the runtime the unit tests reach: one row per folder, from clang's coverage counters, in a
# build folder of its own. The last line is "N passed, N failed", counted in test executables.
#
#   bash tests/coverage.sh [file...]     with files: their lines that no test reaches
set -euo pipefail
cd "$(dirname "$0")/.."
build=${STRIDEC_BUILD:-build}-coverage
llvm=/usr/lib/llvm-19/bin
mkdir -p "$build"
cmake -G Ninja -B "$build" -S . -DSTRIDEC_COVERAGE=ON > "$build/build.log" 2>&1 && ninja -C "$build" unit_tests >> "$build/build.log" 2>&1 ||
  { tail -20 "$build/build.log"; echo "0 passed, 1 failed"; exit 1; }

rm -f "$build"/*.profraw
objects=() passed=0 failed=0
for test in "$build"/test_*; do
  [ -x "$test" ] && [ ! -d "$test" ] || continue
  objects+=(-object "$test")
  if LLVM_PROFILE_FILE=$build/$(basename "$test").%p.profraw "$test" > "$build/coverage.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "== $(basename "$test")"
    tail -20 "$build/coverage.log"
  fi
done
"$llvm/llvm-profdata" merge -sparse -o "$build/coverage.profdata" "$build"/*.profraw
if [ $# -gt 0 ]; then
  "$llvm/llvm-cov" show -instr-profile "$build/coverage.profdata" "${objects[@]}" -sources "${@/#/$PWD/}" |
    grep -E '^ *[0-9]+\| +0\|' || echo "every line is reached"
  exit
fi
"$llvm/llvm-cov" export -summary-only -instr-profile "$build/coverage.profdata" "${objects[@]}" \
  -ignore-filename-regex='/(tests|usr|include/onnx)/|\.pb\.' > "$build/coverage.json"
python3 - "$build/coverage.json" "$PWD" <<'PYTHON'
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
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
