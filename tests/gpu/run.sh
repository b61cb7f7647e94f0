#!/bin/bash
# Proof on a machine with an NVIDIA GPU and no network: the operators' grid against known results, the public ONNX backend
# suite as the files say and with a symbol for each size, operators of other domains, random graphs and the models against
# onnxruntime, compute-sanitizer over the grid, and the benches. Writes one report and the log of each part.
#
#   bash tests/gpu/run.sh OUT [part...]      parts: device grid strided layouts refit traces conformance random models sanitizer benches (all), draws, or benches
#                                            by themselves: memory operators attention few_rows words decode networks host
#                                            products
#
# Environment: build (default build: stridec, test_compiled_cuda, onnx_backend; for `host` and `products` gpu_host_cost and
# gpu_matrix_jobs as well), python (python3: numpy, onnx, onnxruntime; for `draws` and the benches PyTorch, for `networks` torchvision and
# transformers), STRIDEC_NVRTC where NVRTC is in no usual place, models (names; default all of tests/models), graphs (random
# ones; 400), cases (these, written by `random_models.py --gpu --write FOLDER` on a machine that has onnx), seconds (for each
# case of the grid; 400), peers (modes of torch.compile for `networks`). `sanitizer` wants compute-sanitizer on PATH.
set -u
out=$1; shift
here=$(cd "$(dirname "$0")/.." && pwd)
export build=${build:-build} python=${python:-python3}
export stridec=$build/stridec
export STRIDEC_TEST_GPU=1
export seconds=${seconds:-400}
benches='memory operators attention few_rows words decode networks host products'
parts=${*:-device grid strided layouts refit traces conformance random models sanitizer benches}
parts=${parts/benches/$benches}
mkdir -p "$out"
report=$out/report.txt
say() { echo "$@" | tee -a "$report"; }

device() { nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; "$stridec" --version; }

# The grid, perhaps under a tool, in as many processes as there are processors: NVRTC takes longer than the kernels.
run_grid() {
  local cases i failed=0
  cases=$("$build/test_compiled_cuda" -c | sed -nE 's/.*filters: ([0-9]+).*/\1/p')
  [ -n "$cases" ] || { echo "0 passed, 1 failed"; return 1; }
  seq 1 "$cases" | xargs -P "$(nproc)" -I{} sh -c '
    log=$0/grid.{}.log
    timeout "$seconds" "$@" "$build/test_compiled_cuda" --first={} --last={} > "$log" 2>&1 && rm "$log"
    true' "$out" "$@"
  for i in $(seq 1 "$cases"); do
    [ -f "$out/grid.$i.log" ] || continue
    failed=$((failed + 1))
    tail -30 "$out/grid.$i.log"
  done
  rm -f "$out"/grid.*.log
  echo "$((cases - failed)) passed, $failed failed"
  [ $failed = 0 ]
}

grid() { run_grid; }

strided() { "$python" "$here/gpu/strided.py" "$stridec"; }
layouts() { "$python" "$here/gpu/layouts.py" "$stridec"; }

refit() { "$python" "$here/gpu/refit.py" "$stridec"; }
traces() { "$python" "$here/gpu/traces.py" "$stridec" "$build/tests/libfake_nvtx.so"; }

conformance() {
  local status=0
  bash "$here/conformance/run.sh" cuda cuda-dynamic || status=1
  engines=cuda bash "$here/conformance/contrib.sh" || status=1
  return $status
}

random() {
  [ -n "${cases:-}" ] || { "$python" "$here/fuzz/random_models.py" --gpu --count "${graphs:-400}" --seed 7; return; }
  local status=0 form
  for form in "$cases"/*/; do
    form=$(basename "$form")
    echo "$form:"
    "$build/onnx_backend" "$cases/$form" --engine "interpreter,${form%-O*}" --optimize "${form##*-O}" --kernels-per-object 16 --as-given \
      --jobs "$(nproc)" --tests-per-process 8 || status=1
  done
  return $status
}

models() { "$python" "$here/models/run.py" --target cuda ${models:---all}; }

sanitizer() {
  local tool status=0
  for tool in memcheck racecheck; do
    echo "$tool:"
    run_grid compute-sanitizer --tool "$tool" --error-exitcode 9 --require-cuda-init no || status=1
  done
  return $status
}

memory() { "$python" "$here/gpu/bench.py" "$stridec"; }

draws() { "$python" "$here/gpu/random_draws.py" "$stridec"; }

operators() { "$python" "$here/gpu/operators.py" "$stridec"; }

attention() {
  local folder=$out/attention status=0 what
  "$python" "$here/gpu/attention.py" make "$stridec" "$folder" || return 1
  for what in check bench decode; do "$python" "$here/gpu/attention.py" $what "$folder" || status=1; done
  return $status
}

few_rows() { "$python" "$here/gpu/few_rows.py" "$stridec"; }

words() { mkdir -p "$out/words" && "$python" "$here/gpu/words.py" "$stridec" "$out/words"; }

decode() { "$python" "$here/gpu/decode.py" "$stridec"; }

networks() { "$python" "$here/gpu/networks.py" "$stridec" ${peers:+--peers "$peers"}; }

host() { "$python" "$here/gpu/host.py" "$stridec"; }

products() {
  local folder=$out/products status=0 what
  for what in check time strict; do
    rm -rf "$folder" && mkdir -p "$folder"
    "$build/gpu_matrix_jobs" "$folder" $what && "$python" "$here/gpu/matrix.py" "$folder" || status=1
  done
  return $status
}

for part in $parts; do
  say "== $part ($(date -u +%T))"
  "$part" > "$out/$part.log" 2>&1
  code=$?
  cat "$out/$part.log" | tail -80 | tee -a "$report"
  say "-- $part: exit $code"
done
