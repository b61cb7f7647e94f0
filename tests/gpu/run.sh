#!/bin/bash
# Proof on a machine with an NVIDIA GPU and no network: the operators' grid against known results, the models against
# onnxruntime, compute-sanitizer over a sample, and the benches. Writes one report and the log of each part.
#
#   bash tests/gpu/run.sh OUT [part...]      parts: device grid models sanitizer bench (all)
#
# Environment: stridec (default build/stridec), grid (default build/test_compiled_cuda), python (python3: numpy, onnx,
# onnxruntime), STRIDEC_NVRTC where NVRTC is in no usual place, models (names; default all of tests/models).
set -u
out=$1; shift
here=$(cd "$(dirname "$0")/.." && pwd)
export stridec=${stridec:-build/stridec} grid=${grid:-build/test_compiled_cuda} python=${python:-python3}
export STRIDEC_TEST_GPU=1
parts=${*:-device grid models sanitizer bench}
mkdir -p "$out"
report=$out/report.txt
say() { echo "$@" | tee -a "$report"; }

device() { nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; "$stridec" --version; }

# Every test case of the grid in a process of its own: a fault of one is no fault of the others.
grid() {
  local count; count=$("$grid" -ltc 2>/dev/null | grep -c '^[a-z]')
  seq 1 $((count + 1)) | xargs -P "$(nproc)" -I{} sh -c '"$grid" -first={} -last={} > "$0/grid.{}.log" 2>&1; echo "{} $?"' "$out" > "$out/grid.codes"
  cat "$out"/grid.*.log | grep -E '^\[doctest\] (test cases|assertions)' |
    awk '/test cases/ {c += $6; f += $9} /assertions/ {a += $5; b += $8} END {print "cases passed " c ", failed " f "; assertions passed " a ", failed " b}'
  awk '$2 != 0 {print "  shard " $1 " ended with " $2}' "$out/grid.codes"
  cat "$out"/grid.*.log | grep -E '^TEST CASE|ERROR|error' | sort | uniq -c | sort -rn | head -60 > "$out/grid.errors"
  rm -f "$out"/grid.[0-9]*.log
}

models() { "$python" "$here/models/run.py" --target cuda ${models:---all}; }

sanitizer() {
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$grid" -tc='softmax*,*reduce*,gather*,transpose*' > "$out/sanitizer.$tool.log" 2>&1
    echo "$tool: exit $?, $(grep 'ERROR SUMMARY' "$out/sanitizer.$tool.log" | tail -1)"
  done
}

bench() { "$python" "$here/gpu/bench.py" "$stridec"; }

for part in $parts; do
  say "== $part ($(date -u +%T))"
  "$part" > "$out/$part.log" 2>&1
  code=$?
  cat "$out/$part.log" | tail -80 | tee -a "$report"
  say "-- $part: exit $code"
done
