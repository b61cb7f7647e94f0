#!/bin/bash
# The public ONNX backend suite (onnx 1.22.0: 1,914 tests) on the interpreter and on compiled code.
#
#   bash tests/conformance/run.sh [--update] [engine...]     engines: interpreter, compiled (default: both)
#
# tests/conformance/open/ENGINE.txt lists the tests that do not pass yet; one that fails and is not listed is a failure
# here. --update writes the lists anew. What every failing test says: $build/conformance/ENGINE.failures. The last line
# is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${build:-build}
archive=tests/conformance/onnx-backend-1.22.0.tar.xz
work=$build/conformance
update=no
engines=()
for argument in "$@"; do
  [ "$argument" = --update ] && update=yes || engines+=("$argument")
done
[ ${#engines[@]} -gt 0 ] || engines=(interpreter compiled)

if [ ! -f "$work/.unpacked" ] || [ "$archive" -nt "$work/.unpacked" ]; then
  rm -rf "$work/data"
  mkdir -p "$work"
  tar -xJf "$archive" -C "$work"
  touch "$work/.unpacked"
fi

mkdir -p tests/conformance/open
total_passed=0 total_failed=0
for engine in "${engines[@]}"; do
  open=tests/conformance/open/$engine.txt
  # The ten large networks of light/ take the interpreter minutes each.
  groups=(node/ simple/ pytorch-)
  [ "$engine" = interpreter ] || groups+=(real/)
  "$build/onnx_backend" "$work/data" "${groups[@]}" --engine "$engine" --failures "$work/$engine.failures" --jobs "$(nproc)" \
    > "$work/$engine.log" || [ $? = 1 ] || { cat "$work/$engine.log"; echo "$engine: the runner ended with an error"; exit 1; }
  passed=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1/p' "$work/$engine.log")
  cut -f1 "$work/$engine.failures" | LC_ALL=C sort > "$work/$engine.names"
  if [ "$update" = yes ]; then cp "$work/$engine.names" "$open"; fi
  [ -f "$open" ] || : > "$open"
  known=$(LC_ALL=C comm -12 "$work/$engine.names" "$open" | wc -l)
  fixed=$(LC_ALL=C comm -13 "$work/$engine.names" "$open" | wc -l)
  new=$(LC_ALL=C comm -23 "$work/$engine.names" "$open" | wc -l)
  echo "$engine: $passed pass, $known are known not to, $new are new failures; why: $work/$engine.failures"
  head -n -1 "$work/$engine.log"
  [ "$fixed" = 0 ] || echo "$engine: $fixed of those listed in $open pass now; --update takes them out"
  if [ "$new" != 0 ]; then
    LC_ALL=C comm -23 "$work/$engine.names" "$open" | LC_ALL=C join -t $'\t' - <(LC_ALL=C sort "$work/$engine.failures") | head -50
  fi
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + new))
done
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" = 0 ]
