#!/bin/bash
# The public ONNX backend suite (onnx 1.22.0: 1,914 tests) in each mode of tests/conformance/modes.h.
#
#   sample=N bash tests/conformance/run.sh [mode...]       one test in N of each mode; see onnx_backend --sample
#   bash tests/conformance/run.sh [--update] [mode...]     modes: interpreter, compiled, dynamic, constant (default: these
#                                                          four), cuda and cuda-dynamic on a machine with a GPU,
#                                                          emulated and emulated-dynamic: its kernels without one
#
# Prints how many tests of each operator pass. tests/conformance/open/MODE.txt lists the tests that do not pass yet, each
# perhaps with the reason behind a tab; one that fails and is not listed is a failure here, and so is one of the list that
# passes, and a mode without a list. MODE.bound.txt lists those that pass with some of their inputs given as
# constants alone; another one is a failure too, where there is such a list. --update writes the lists anew. What every such test says:
# $build/conformance/MODE.failures and MODE.bound; of a run with the modes A and B, run-A-B.one-shape tells which run at the
# test's sizes alone in `dynamic`, and why, and run-A-B.seconds how long each took to compile. A test of a
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

# Two runs with other modes may be under way at a time: one of them unpacks, and each has files of its own.
mkdir -p "$work"
exec 9> "$work/.lock"
flock 9
if [ ! -f "$work/.unpacked" ] || [ "$archive" -nt "$work/.unpacked" ]; then
  rm -rf "$work/data"
  tar -xJf "$archive" -C "$work"
  touch "$work/.unpacked"
fi
exec 9>&-
run=$work/run-$(IFS=-; echo "${modes[*]}")

# A GPU's context takes longer to make than most tests run. NVRTC builds every way in which a kernel may run.
together=1 seconds=8
case ${modes[0]} in cuda*) together=8 seconds=60 ;; emulated*) seconds=60 ;; esac

mkdir -p tests/conformance/open
"$build/onnx_backend" "$work/data" --engine "$(IFS=,; echo "${modes[*]}")" --table --failures "$run.failures" \
  --bound "$run.bound" --one-shape "$run.one-shape" --seconds "$run.seconds" --sample "${sample:-1}" \
  --jobs "$(nproc)" --tests-per-process $together > "$run.log" || [ $? = 1 ] || { cat "$run.log"; echo "the runner ended with an error"; exit 1; }
head -n -1 "$run.log"
passed=$(tail -1 "$run.log" | cut -d' ' -f1)
failed=0
# One mode's lines of $run.KIND against the names in a list: what the listed ones are, what the others are.
compare() {
  local mode=$1 kind=$2 open=$3 listed=$4 unlisted=$5
  local found=$work/$mode.$kind names=$work/$mode.$kind.names known fixed new
  { grep -P "^$mode\t" "$run.$kind" || true; } | cut -f2- > "$found"
  cut -f1 "$found" | LC_ALL=C sort > "$names"
  if [ "$update" = yes ]; then
    case $mode.$kind in emulated*.failures) LC_ALL=C sort "$found" ;; *) cat "$names" ;; esac > "$open"
  fi
  if [ ! -f "$open" ]; then
    [ "$kind" = failures ] || return 0
    echo "$mode: there is no list $open of what is known to fail; --update writes it"
    failed=$((failed + 1))
    return
  fi
  # Of the list, the tests that ran.
  LC_ALL=C comm -12 <(cut -f1 "$open" | LC_ALL=C sort) \
    <(awk -F '\t' -v mode="$mode" '$1 == mode { print $2 }' "$run.seconds" | LC_ALL=C sort) > "$found.listed"
  known=$(LC_ALL=C comm -12 "$names" "$found.listed" | wc -l)
  fixed=$(LC_ALL=C comm -13 "$names" "$found.listed" | wc -l)
  new=$(LC_ALL=C comm -23 "$names" "$found.listed" | wc -l)
  echo "$mode: $known $listed, $new $unlisted; why: $found"
  if [ "$fixed" != 0 ]; then
    echo "$mode: $fixed of those listed in $open are no longer; --update takes them out"
    LC_ALL=C comm -13 "$names" "$found.listed" | head -50
  fi
  if [ "$new" != 0 ]; then
    LC_ALL=C comm -23 "$names" "$found.listed" | LC_ALL=C join -t $'\t' - <(LC_ALL=C sort "$found") | head -50
  fi
  failed=$((failed + new))
  [ "$kind" != failures ] || failed=$((failed + fixed))
}
for mode in "${modes[@]}"; do
  compare "$mode" failures "tests/conformance/open/$mode.txt" "are known not to pass" "are new failures"
  compare "$mode" bound "tests/conformance/open/$mode.bound.txt" "are known to want constants" "want constants that are not listed"
done
slow=$(awk -F '\t' -v most=$seconds '$3 > most && $2 !~ /^real\//' "$run.seconds")
if [ -n "$slow" ]; then
  echo "compiling took more than $seconds s of processor time:"
  echo "$slow"
  failed=$((failed + $(wc -l <<< "$slow")))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
