#!/bin/bash
# The public ONNX backend suite (onnx 1.22.0: 1,914 tests) in each mode of tests/conformance/modes.h.
#
#   bash tests/conformance/run.sh [--update] [mode...]     modes: interpreter, compiled, dynamic, constant (default: all)
#
# Prints how many tests of each operator pass. tests/conformance/open/MODE.txt lists the tests that do not pass yet; one
# that fails and is not listed is a failure here. --update writes the lists anew. What every failing test says:
# $build/conformance/MODE.failures. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${build:-build}
archive=tests/conformance/onnx-backend-1.22.0.tar.xz
work=$build/conformance
update=no
modes=()
for argument in "$@"; do
  [ "$argument" = --update ] && update=yes || modes+=("$argument")
done
[ ${#modes[@]} -gt 0 ] || modes=(interpreter compiled dynamic constant)

if [ ! -f "$work/.unpacked" ] || [ "$archive" -nt "$work/.unpacked" ]; then
  rm -rf "$work/data"
  mkdir -p "$work"
  tar -xJf "$archive" -C "$work"
  touch "$work/.unpacked"
fi

mkdir -p tests/conformance/open
"$build/onnx_backend" "$work/data" --engine "$(IFS=,; echo "${modes[*]}")" --table --failures "$work/failures" --jobs "$(nproc)" \
  > "$work/log" || [ $? = 1 ] || { cat "$work/log"; echo "the runner ended with an error"; exit 1; }
head -n -1 "$work/log"
passed=$(tail -1 "$work/log" | cut -d' ' -f1)
failed=0
for mode in "${modes[@]}"; do
  open=tests/conformance/open/$mode.txt
  { grep -P "^$mode\t" "$work/failures" || true; } | cut -f2- > "$work/$mode.failures"
  cut -f1 "$work/$mode.failures" | LC_ALL=C sort > "$work/$mode.names"
  if [ "$update" = yes ]; then cp "$work/$mode.names" "$open"; fi
  [ -f "$open" ] || : > "$open"
  known=$(LC_ALL=C comm -12 "$work/$mode.names" "$open" | wc -l)
  fixed=$(LC_ALL=C comm -13 "$work/$mode.names" "$open" | wc -l)
  new=$(LC_ALL=C comm -23 "$work/$mode.names" "$open" | wc -l)
  echo "$mode: $known are known not to pass, $new are new failures; why: $work/$mode.failures"
  [ "$fixed" = 0 ] || echo "$mode: $fixed of those listed in $open pass now; --update takes them out"
  if [ "$new" != 0 ]; then
    LC_ALL=C comm -23 "$work/$mode.names" "$open" | LC_ALL=C join -t $'\t' - <(LC_ALL=C sort "$work/$mode.failures") | head -50
  fi
  failed=$((failed + new))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
