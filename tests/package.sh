#!/bin/bash
# Tests runtime/install/package.sh: two builds give the same bytes; the tarball and the .deb unpack, and their program compiles a
# model. Both are installed in bare roots of Debian 12 and Ubuntu 24.04, the tarball also in one with glibc 2.28
# (tests/package/in_root.sh). The Dockerfile's image is built and used (tests/package/image.sh), and the steps of the GitHub
# workflow sample run (tests/package/workflow.py). The last line is "N passed, N failed".
#
# Roots are made from the archives of their systems and stay in $STRIDEC_CACHE/roots. Debian's are required. If Ubuntu's or
# glibc 2.28's, which needs STRIDEC_GLIBC (tests/package/make_root.sh), cannot be made, the test prints a line and skips it.
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

# Whether a program needs no glibc newer than 2.28. Prints the newest version that it needs.
old_enough() {
  local newest
  newest=$(objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
  echo "$newest"
  [ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -1)" = GLIBC_2.28 ]
}
write_model() {
  "$python" - "$work/model.onnx" <<'PYTHON'
import sys
import onnx
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "add", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
PYTHON
}
compiles() { "$1" compile "$work/model.onnx" --cpu x86-64-v3 -o "$work/model.so" && "$1" run "$work/model.so" --random --dim n=3; }

# root NAME [optional]: makes the root unless it exists. If that fails, prints a line for an optional root and reports a failure
# for others.
roots=${STRIDEC_CACHE:-$HOME/.cache/stridec}/roots
root() {
  [ -f "$roots/$1.tar" ] && return
  bash tests/package/make_root.sh "$1" "$roots/$1.tar" > "$work/log" 2>&1 && return
  if [ "${2:-}" = optional ]; then echo "without $1: $(tail -1 "$work/log")"; else check "a root of $1" bash -c "cat '$work/log'; false"; fi
  return 1
}

check "what these tests need" .ci/setup --packages
check "a model" write_model
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

for name in debian12 "ubuntu24.04 optional" "glibc2.28 optional"; do
  # shellcheck disable=SC2086
  root $name || continue
  name=${name% *}
  packages=("$work"/one/*)
  for file in "${packages[@]}"; do
    case $name:$file in *SHA256SUMS | glibc2.28:*.deb) continue ;; esac
    check "$name: ${file##*/}" bash tests/package/in_root.sh "$roots/$name.tar" "$file" "$work/model.onnx" "$work/model.so"
  done
done

if root debian12-image; then
  check "the Dockerfile's image" bash tests/package/image.sh "$roots/debian12-image.tar" "$work/one" "$work/model.onnx"
fi
check "hadolint" "${STRIDEC_CACHE:-$HOME/.cache/stridec}/lint/bin/hadolint" Dockerfile
check "the GitHub workflow sample" "$python" tests/package/workflow.py "$work/one"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
