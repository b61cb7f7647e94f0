#!/bin/bash
# runtime/install/package.sh: the same bytes twice; the tarball and the .deb unpack, and what is in them runs and compiles a model.
# The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
export build=${build:-build}
python=${python:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() {
  local what=$1
  shift
  if "$@" > "$work/log" 2>&1; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAIL $what"
    cat "$work/log"
  fi
}

# What a program asks of glibc at most.
old_enough() {
  local newest
  newest=$(objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
  echo "$newest"
  [ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -1)" = GLIBC_2.28 ]
}
compiles() {
  "$python" - "$work/add.onnx" <<'PYTHON'
import sys
import onnx
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "add", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
PYTHON
  "$1" compile "$work/add.onnx" -o "$work/add.so" && "$1" run "$work/add.so" --random --dim n=3
}

check "packages" bash runtime/install/package.sh "$work/one"
check "and once more" bash runtime/install/package.sh "$work/two"
for file in "$work"/one/*; do check "the same bytes: ${file##*/}" cmp "$file" "$work/two/${file##*/}"; done
check "checksums" bash -c "cd '$work/one' && sha256sum -c SHA256SUMS"

mkdir "$work/tar" "$work/deb"
check "the tarball unpacks" tar -C "$work/tar" -xzf "$work"/one/stridec-*.tar.gz
from_tar=$(echo "$work"/tar/stridec-*/bin/stridec)
check "needs glibc 2.28 at most" old_enough "$from_tar"
check "compiles and runs a model" compiles "$from_tar"
check "manual page" test -s "${from_tar%/bin/stridec}/share/man/man1/stridec-compile.1"

check "the .deb unpacks" dpkg-deb -x "$work"/one/*.deb "$work/deb"
check "the .deb's program" compiles "$work/deb/usr/bin/stridec"
for file in include/stridec/runtime.h include/stridec/plugin.h share/man/man1/stridec.1.gz share/doc/stridec/copyright \
  share/bash-completion/completions/stridec; do check "the .deb has $file" test -s "$work/deb/usr/$file"; done
check "and pkg-config's file" bash -c "find '$work/deb' -name stridec.pc | grep ."
check "owners are root" bash -c "! dpkg-deb -c '$work'/one/*.deb | grep -v ' root/root '"
check "fields" bash -c "dpkg-deb -f '$work'/one/*.deb Depends | grep -q 'libc6 (>= 2.28)'"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
