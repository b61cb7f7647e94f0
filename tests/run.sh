#!/bin/bash
# Builds everything and runs all tests. The last line is "N passed, N failed". tests/suites.txt lists the suites.
#
#   bash tests/run.sh [name...]     only the suites, or unit tests (test_<folder>), with one of these names
#   STRIDEC_BUILD                   the build folder (default build)
#   STRIDEC_LANES                   how many suites run at a time (default 2)
#   STRIDEC_NIGHTLY                 if set: the nightly suites too, and all that suites leave out otherwise (tests/nightly.sh)
set -uo pipefail
cd "$(dirname "$0")/.."
build=${STRIDEC_BUILD:-build}
only=("$@") unit_tests=
for name in "$@"; do
  case $name in test_*) unit_tests+=" $name" only+=(unit) ;; esac
done
export unit_tests

suites=()
while IFS='|' read -r name when command; do
  [ "$when" = ci ] || [ -n "${STRIDEC_NIGHTLY:-}" ] || [[ " ${only[*]} " == *" $name "* ]] || continue
  suites+=("$name|$command")
done < <(grep -v '^#' tests/suites.txt)

bash .ci/setup || { echo "0 passed, 1 failed"; exit 1; }
export build stridec=$build/stridec python=${STRIDEC_CACHE:-$HOME/.cache/stridec}/python/bin/python
cmake -G Ninja -B "$build" -S . > "$build.configure.log" 2>&1 && mv "$build.configure.log" "$build/configure.log" ||
  { cat "$build.configure.log"; echo "0 passed, 1 failed"; exit 1; }
ninja -C "$build" || { echo "0 passed, 1 failed"; exit 1; }

# A suite that hangs fails with the stack of its Python, and the others still run. The slowest suite takes seven minutes on two
# processors; nightly ones take hours.
export PYTHONFAULTHANDLER=1 PYTHONUNBUFFERED=1
export limit=$([ -n "${STRIDEC_NIGHTLY:-}" ] && echo 0 || echo 2700)
# Most suites keep one processor busy, so that two run at a time; rows stand in the order of tests/suites.txt. Nightly suites
# measure time and memory and run alone.
lanes=${STRIDEC_LANES:-$([ -n "${STRIDEC_NIGHTLY:-}" ] && echo 1 || echo 2)}
passed=0 failed=0 broken=() skipped=() times=() unit_times=()
wanted() {
  local name
  [ ${#only[@]} -eq 0 ] && return 0
  for name in "${only[@]}"; do [ "$name" = "$1" ] && return 0; done
  return 1
}

# count NAME STATUS SECONDS PASSED FAILED: a status that the counts do not explain (a crash, no summary, no test) is one failure more.
count() {
  local name=$1 status=$2 seconds=$3 p=${4:-0} f=${5:-0}
  if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ "$p" = 0 ] && [ "$f" = 0 ]; then f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
  [ "$f" = 0 ] || broken+=("$name")
  times+=("$seconds $name")
  printf '%-24s %6d passed, %d failed   %5.1f s\n' "$name" "$p" "$f" "$seconds"
}

# run_suite LOGS NAME COMMAND: what the suite prints into LOGS/NAME, then its status and seconds into LOGS/NAME.done.
run_suite() {
  local log=$1/$2 started=$EPOCHREALTIME status
  timeout --signal=ABRT --kill-after=10 "$limit" bash -c "$3" > "$log" 2>&1 &
  echo $! > "$log.pid"
  wait $!
  status=$?
  rm -f "$log.pid"
  [ "$status" != 124 ] || echo "$2: stopped after $limit s" >> "$log"
  awk -v s="$status" -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { print s, b - a }' > "$log.end"
  mv "$log.end" "$log.done"
}
export -f run_suite

# tell NAME: the row of a suite that has ended, after what it printed if it failed.
tell() {
  local name=$1 log=$logs/$1 status seconds numbers reason
  read -r status seconds < "$log.done"
  numbers=$(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log" | tail -1)
  # A suite that lacks something of the machine runs no test; the run says so, here and in the end.
  if [ "$status" = 0 ] && [ "$numbers" = "0 0" ] && reason=$(sed -n 's/^skipped: //p' "$log") && [ -n "$reason" ]; then
    printf '%-24s skipped: %s\n' "$name" "$reason"
    skipped+=("$name")
    return
  fi
  [ "$status" = 0 ] && [ "${numbers#* }" = 0 ] || cat "$log"
  count "$name" "$status" "$seconds" $numbers
  # Rows and tables are what these have to say.
  [ "$name" != unit ] && [ "$name" != instrumented ] || sed '$d; s/^/    /' "$log"
  [ "$name" != unit ] || mapfile -t unit_times < <(sed -nE 's/^(test_[a-z_]+) .* ([0-9.]+) s( .*)?$/\2 \1/p' "$log")
}

logs=$(mktemp -d)
runner=
# A run that is stopped stops its suites: `timeout` passes the signal on.
stop() {
  [ -z "$runner" ] || kill "$runner" 2> /dev/null
  cat "$logs"/*.pid 2> /dev/null | xargs -r kill 2> /dev/null
  rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

names=() arguments=()
for suite in "${suites[@]}"; do
  wanted "${suite%%|*}" || continue
  names+=("${suite%%|*}") arguments+=("$logs" "${suite%%|*}" "${suite#*|}")
done
[ ${#names[@]} -eq 0 ] || printf '%s\0' "${arguments[@]}" | xargs -0 -n 3 -P "$lanes" bash -c 'run_suite "$@"' _ &
runner=$!
for name in "${names[@]}"; do
  while [ ! -e "$logs/$name.done" ] && kill -0 "$runner" 2> /dev/null; do sleep 0.2; done
  # Without it the suite never ran to its end.
  [ -e "$logs/$name.done" ] || echo "1 0" > "$logs/$name.done"
  tell "$name"
done
wait
runner=

echo "slowest: $(printf '%s\n' "${times[@]}" "${unit_times[@]}" | sort -rn | head -10 | awk '{ printf "%s%s %.0f s", sep, $2, $1; sep = ", " }')"
[ ${#skipped[@]} -eq 0 ] || echo "skipped: ${skipped[*]}"
[ ${#broken[@]} -eq 0 ] || echo "failed: ${broken[*]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
