#!/bin/bash
# The parsers under libFuzzer, each for some seconds, from tests/fuzz/seeds, the corpus of earlier runs
# (tests/fuzz/corpus.tar.xz) and what this build folder has found since. What breaks one is left in $build/fuzz/<name>/found.
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

passed=0 failed=0
for name in "${names[@]}"; do
  work=$build/fuzz/$name
  mkdir -p "$work/corpus" "$work/found"
  seeds=()
  for folder in tests/fuzz/seeds/"$name" "$build/fuzz/earlier/$name"; do
    [ ! -d "$folder" ] || seeds+=("$folder")
  done
  if "$build/fuzz_$name" -max_total_time="$seconds" "${limits[@]}" -artifact_prefix="$work/found/" \
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
