#!/bin/bash
# Operators of com.microsoft and ai.onnx.ml against onnxruntime's results, on the interpreter and on compiled code.
#
#   bash tests/conformance/contrib.sh [name...]
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
for engine in interpreter compiled; do
  "$build/onnx_backend" "$data" --engine "$engine" --list --jobs "$(nproc)" > "$data/$engine.log" || [ $? = 1 ]
  sed "s/^/$engine: /" "$data/$engine.log"
  passed=$((passed + $(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1/p' "$data/$engine.log")))
  failed=$((failed + $(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\2/p' "$data/$engine.log")))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
