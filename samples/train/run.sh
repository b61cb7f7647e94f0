#!/bin/bash
# Trains three small networks with what `stridec compile --train` made of them: a GPT and a residual network from C, and a
# recurrent network from Python. Each line that says what was reached is checked. Takes about a minute on two cores.
#
#   STRIDEC_BUILD   the build folder (default build)
#   STRIDEC_CACHE   its Python environment has numpy and onnx (default ~/.cache/stridec)
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${STRIDEC_BUILD:-build}
stridec=${stridec:-$build/stridec}
python=${python:-${STRIDEC_CACHE:-$HOME/.cache/stridec}/python/bin/python}
out=$build/samples-train
mkdir -p "$out"
passed=0 failed=0

# reached NAME LIMIT COMMAND...: what the last line of the form "NAME VALUE" says is at most LIMIT.
reached() {
  local name=$1 limit=$2 value
  shift 2
  "$@" | tee "$out/log"
  value=$(sed -n "s/^$name \([0-9.]*\).*/\1/p" "$out/log" | tail -1)
  if awk -v value="${value:-1e9}" -v limit="$limit" 'BEGIN { exit !(value <= limit) }'; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name $value is above $limit"
  fi
}
compile() { "$stridec" compile "$out/$1.onnx" -o "$out/$1.so" -q --train "$2"; }
build_c() { cc -O2 -std=c11 -Wall -Wextra -Werror -I runtime/include "samples/train/$1.c" -o "$out/$1" -ldl -lm; }

"$python" samples/train/write_models.py "$out"

echo "== a GPT of two layers, on the bytes of this project's documentation"
compile gpt loss=cross_entropy,logits=y,labels=next,optimizer=adamw,lr=input,clip_norm=1
build_c train_gpt
cat README.md docs/*.md > "$out/text.txt"
reached "held-out loss" 2.6 "$out/train_gpt" "$out/gpt.so" "$out/text.txt" "${gpt_steps:-400}"

echo "== a residual network, on images made in place"
compile resnet loss=cross_entropy,logits=y,labels=class,optimizer=sgd,momentum=0.9,lr=0.03
build_c train_resnet
reached "wrong" 0.05 "$out/train_resnet" "$out/resnet.so" 80 "$out/resnet.states"

echo "== a recurrent network, from Python"
compile lstm loss=mse,output=y,target=t,optimizer=adamw,lr=3e-3,clip_norm=1
PYTHONPATH=python reached "held-out loss" 0.02 "$python" samples/train/train_lstm.py "$out/lstm.so" 300

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
