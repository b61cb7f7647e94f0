#!/bin/bash
# Runs the unit tests of a build folder, one executable per core. The last line is "N passed, N failed", counted in test
# cases, and how many value checks were skipped, if any; before it a row per executable, and what the failing ones said.
#
#   bash tests/unit.sh build [name...]     only the executables with one of these names
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run_one BUILD LOGS NAME: NAME's counts and seconds into LOGS/NAME. A crash, or no summary, is a failure more.
run_one() {
  local build=$1 log=$2/$3 started=$EPOCHREALTIME status numbers passed failed
  LLVM_PROFILE_FILE=$build/$3.%p.profraw "$build/$3" > "$log.out" 2>&1
  status=$?
  # "[doctest] test cases:  3 |  3 passed | 0 failed | 0 skipped"
  numbers=$(sed -nE 's/^\[doctest\] test cases: *[0-9]+ \| *([0-9]+) passed \| *([0-9]+) failed.*/\1 \2/p' "$log.out")
  read -r passed failed <<< "${numbers:-0 1}"
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
  awk -v p="$passed" -v f="$failed" -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { print p, f, b - a }' > "$log"
  grep -a -e '^sample: ' -e '^value checks: ' "$log.out" >> "$log"
}
export -f run_one

# Only folders that hold tests: an executable may stand in the build folder whose source is gone. Those that take
# minutes begin first.
names=()
long="compiled_cuda codegen_products codegen_cuda codegen_convolutions codegen_cpu compiled_schedules schedule compiled_ops"
for name in $long $(cd tests/unit && printf '%s\n' */ | tr -d /); do
  [ -n "$(find "tests/unit/$name" -maxdepth 1 -name '*.cpp' -print -quit)" ] || continue
  [ $# -eq 0 ] || [[ " $* " == *" test_$name "* ]] || continue
  [[ " ${names[*]} " == *" test_$name "* ]] || names+=("test_$name")
done
[ ${#names[@]} -eq 0 ] || printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one "$@"' _ "$build" "$logs" {}

total_passed=0 total_failed=0 total_skipped=0
for name in $(printf '%s\n' "${names[@]}" | sort); do
  read -r passed failed seconds < "$logs/$name"
  [ "$failed" = 0 ] || { echo "== $name"; tail -100 "$logs/$name.out"; }
  notes=$(sed -nE 's/^sample: /   grid: /p; s/^value checks: /   &/p' "$logs/$name" | tr -d '\n')
  printf '%-24s %6d passed, %d failed   %5.1f s%s\n' "$name" "$passed" "$failed" "$seconds" "$notes"
  skipped=$(sed -nE 's/^value checks: ([0-9]+) of.*/\1/p' "$logs/$name")
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + ${skipped:-0}))
done
[ "$total_skipped" = 0 ] && note="" || note=", $total_skipped value checks skipped"
echo "$total_passed passed, $total_failed failed$note"
[ "$total_failed" = 0 ]
