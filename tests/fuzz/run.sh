#!/bin/bash
# The parsers under libFuzzer, each for some seconds. What breaks one is left in $build/fuzz/<name>/found.
#
#   bash tests/fuzz/run.sh [SECONDS [name...]]     names: onnx graph_file graph_text loop_text expression npy tuning image
#
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(onnx graph_file graph_text loop_text expression npy tuning image)
build=${STRIDEC_BUILD:-build}-fuzz
mkdir -p "$build"
cmake -G Ninja -B "$build" -S . -DSTRIDEC_FUZZ=ON > "$build/configure.log" 2>&1 && ninja -C "$build" fuzz_parsers ||
  { tail -20 "$build/configure.log"; echo "0 passed, 1 failed"; exit 1; }
passed=0 failed=0
for name in "${names[@]}"; do
  work=$build/fuzz/$name
  mkdir -p "$work/corpus" "$work/found"
  seeds=(tests/fuzz/seeds/"$name")
  [ -d "${seeds[0]}" ] || seeds=()
  # An input may take 10 seconds and 2 GB, not more.
  if "$build/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/found/" \
    "$work/corpus" "${seeds[@]}" > "$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -30 "$work/log"
  fi
  echo "$name: $(sed -nE 's/^Done ([0-9]+) runs.*/\1 inputs/p' "$work/log")"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
