#!/bin/bash
# The parsers under libFuzzer, each for some seconds, from tests/fuzz/seeds, the corpus of earlier runs
# (tests/fuzz/corpus.tar.xz) and what this build folder has found since. What breaks one is left in $build/fuzz/<name>/found.
# A line each says what tests/fuzz/record.txt wants to know: how much processor time, how many inputs.
#
#   bash tests/fuzz/run.sh [SECONDS [name...]]     names: the files of tests/fuzz/parsers
#   bash tests/fuzz/run.sh --minimise              what reaches all that is reached, back into corpus.tar.xz
#
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=($(cd tests/fuzz/parsers && ls -- *.cpp | sed 's/\.cpp$//'))
build=${STRIDEC_BUILD:-build}-fuzz
mkdir -p "$build"
cmake -G Ninja -B "$build" -S . -DSTRIDEC_FUZZ=ON > "$build/configure.log" 2>&1 &&
  ninja -C "$build" "${names[@]/#/fuzz_}" || { tail -20 "$build/configure.log"; echo "0 passed, 1 failed"; exit 1; }
mkdir -p "$build/fuzz/earlier"
[ ! -f tests/fuzz/corpus.tar.xz ] || tar -xJf tests/fuzz/corpus.tar.xz -C "$build/fuzz/earlier"

# An input may take 10 seconds and 2 GB, not more.
limits=(-timeout=10 -rss_limit_mb=2048)
if [ "$seconds" = --minimise ]; then
  small=$build/fuzz/small
  rm -rf "$small"
  for name in "${names[@]}"; do
    mkdir -p "$small/$name" "$build/fuzz/$name/corpus" "$build/fuzz/earlier/$name"
    "$build/fuzz_$name" "${limits[@]}" -merge=1 -max_len=4096 "$small/$name" "$build/fuzz/$name/corpus" \
      "$build/fuzz/earlier/$name" > "$build/fuzz/$name/merge.log" 2>&1 || { tail -5 "$build/fuzz/$name/merge.log"; exit 1; }
    echo "$name: $(ls "$small/$name" | wc -l) inputs"
  done
  tar -C "$small" --sort=name --mtime=@0 --owner=0 --group=0 -cJf tests/fuzz/corpus.tar.xz .
  exit
fi

passed=0 failed=0 TIMEFORMAT='%U %S'
for name in "${names[@]}"; do
  work=$build/fuzz/$name
  mkdir -p "$work/corpus" "$work/found"
  seeds=()
  for folder in tests/fuzz/seeds/"$name" "$build/fuzz/earlier/$name"; do
    [ ! -d "$folder" ] || seeds+=("$folder")
  done
  broken=0
  { time "$build/fuzz_$name" -max_total_time="$seconds" -print_final_stats=1 "${limits[@]}" -artifact_prefix="$work/found/" \
    "$work/corpus" "${seeds[@]}" > "$work/log" 2>&1; } 2> "$work/time" || broken=1
  passed=$((passed + 1 - broken)) failed=$((failed + broken))
  [ $broken = 0 ] || tail -30 "$work/log"
  echo "$(date +%F) $(git rev-parse --short HEAD) libFuzzer $name: $(tail -1 "$work/time" | awk '{ printf "%.0f", $1 + $2 }') s," \
    "$(sed -nE 's/^stat::number_of_executed_units: ([0-9]+)/\1/p' "$work/log") inputs, $broken found"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
