#!/bin/bash
# Operators of com.microsoft and ai.onnx.ml against onnxruntime's results, on the interpreter, on compiled code, and on a
# GPU's kernels as they are emulated. What does not pass is listed in tests/conformance/open/contrib.ENGINE.txt, each with
# the reason behind a tab; one of the list that passes is a failure as well, where all are run.
#
#   bash tests/conformance/contrib.sh [name...]      engines: other ones, such as cuda where there is a GPU
#
# The cases are made anew by contrib.py. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${build:-build}
python=${python:-python3}
data=$build/contrib
rm -rf "$data"
"$python" tests/conformance/contrib.py "$data" "$@"
passed=0 failed=0
for engine in ${engines:-interpreter compiled emulated}; do
  open=tests/conformance/open/contrib.$engine.txt
  "$build/onnx_backend" "$data" --engine "$engine" --list --failures "$data/$engine.failures" --jobs "$(nproc)" \
    --tests-per-process 8 > "$data/$engine.log" || [ $? = 1 ]
  sed "s/^/$engine: /" "$data/$engine.log"
  passed=$((passed + $(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1/p' "$data/$engine.log")))
  # Those that fail or are listed, not both.
  differ=$(LC_ALL=C comm -3 <(cut -f2 "$data/$engine.failures" | LC_ALL=C sort) \
    <([ ! -f "$open" ] || [ $# -gt 0 ] || cut -f1 "$open" | LC_ALL=C sort) | tr -d '\t')
  [ ! -f "$open" ] || echo "$engine: $(wc -l < "$open") are known not to pass: $open"
  [ -z "$differ" ] || { echo "$differ"; failed=$((failed + $(wc -l <<< "$differ"))); }
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
