#!/bin/bash
# The public ONNX backend suite (onnx 1.22.0: 1,914 tests) in each mode of tests/conformance/modes.h.
#
#   bash tests/conformance/run.sh [--update] [mode...]     modes: interpreter, compiled, dynamic, constant (default: these
#                                                          four), cuda and cuda-dynamic on a machine with a GPU
#
# Prints how many tests of each operator pass. tests/conformance/open/MODE.txt lists the tests that do not pass yet; one
# that fails and is not listed is a failure here. MODE.bound.txt lists those that pass with some of their inputs given as
# constants alone; another one is a failure too, where there is such a list. --update writes the lists anew. What every such test says:
# $build/conformance/MODE.failures and MODE.bound; which run at the test's sizes alone in `dynamic`, and why: one-shape; how long each took to compile: $build/conformance/seconds. A test of a
# single operator that takes more than 8 s of processor time (kernels come from the cache where it has them) is a failure, too.
# The last line is "N passed, N failed".
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

# A GPU's context takes longer to make than most tests run.
together=1
case ${modes[0]} in cuda*) together=8 ;; esac

mkdir -p tests/conformance/open
"$build/onnx_backend" "$work/data" --engine "$(IFS=,; echo "${modes[*]}")" --table --failures "$work/failures" --bound "$work/bound" --one-shape "$work/one-shape" --seconds "$work/seconds" \
  --jobs "$(nproc)" --tests-per-process $together > "$work/log" || [ $? = 1 ] || { cat "$work/log"; echo "the runner ended with an error"; exit 1; }
head -n -1 "$work/log"
passed=$(tail -1 "$work/log" | cut -d' ' -f1)
failed=0
# One mode's lines of $work/KIND against the names in a list: what the listed ones are, what the others are.
compare() {
  local mode=$1 kind=$2 open=$3 listed=$4 unlisted=$5
  local found=$work/$mode.$kind names=$work/$mode.$kind.names known fixed new
  { grep -P "^$mode\t" "$work/$kind" || true; } | cut -f2- > "$found"
  cut -f1 "$found" | LC_ALL=C sort > "$names"
  if [ "$update" = yes ]; then cp "$names" "$open"; fi
  if [ ! -f "$open" ]; then
    echo "$mode: $(wc -l < "$names") without a list $open; why: $found"
    return
  fi
  known=$(LC_ALL=C comm -12 "$names" "$open" | wc -l)
  fixed=$(LC_ALL=C comm -13 "$names" "$open" | wc -l)
  new=$(LC_ALL=C comm -23 "$names" "$open" | wc -l)
  echo "$mode: $known $listed, $new $unlisted; why: $found"
  [ "$fixed" = 0 ] || echo "$mode: $fixed of those listed in $open are no longer; --update takes them out"
  if [ "$new" != 0 ]; then
    LC_ALL=C comm -23 "$names" "$open" | LC_ALL=C join -t $'\t' - <(LC_ALL=C sort "$found") | head -50
  fi
  failed=$((failed + new))
}
for mode in "${modes[@]}"; do
  compare "$mode" failures "tests/conformance/open/$mode.txt" "are known not to pass" "are new failures"
  compare "$mode" bound "tests/conformance/open/$mode.bound.txt" "are known to want constants" "want constants that are not listed"
done
slow=$(awk -F '\t' '$3 > 8 && $2 !~ /^real\//' "$work/seconds")
if [ -n "$slow" ]; then
  echo "compiling took more than 8 s of processor time:"
  echo "$slow"
  failed=$((failed + $(wc -l <<< "$slow")))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
