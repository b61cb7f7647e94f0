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

grid() { timeout 400 "$grid"; }

models() { "$python" "$here/models/run.py" --target cuda ${models:---all}; }

sanitizer() {
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 timeout 400 "$grid" -tc='*reduc*,*gather*,*convolution*' > "$out/sanitizer.$tool.log" 2>&1
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
