#!/bin/bash
# `cmake --install` into a folder of its own: the program runs there, and samples/c/embed.c compiles against what is
# installed, by pkg-config's file and by CMake's, also after the folder was moved. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
build=${build:-build}
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

embed() { cc -std=c99 -Wall -Werror samples/c/embed.c -o "$work/embed" "$@" -lm; }

# Without pkg-config: what it would print of a file that names its own folder.
by_pkg_config() {
  local file
  file=$(find "$work/moved" -name stridec.pc)
  if command -v pkg-config > /dev/null; then
    embed $(PKG_CONFIG_PATH=${file%/*} pkg-config --cflags --libs stridec)
  else
    local pcfiledir=${file%/*} prefix includedir
    eval "$(sed -nE 's/^(prefix|includedir)=(.*)$/\1="\2"/p' "$file")"
    embed $(eval "echo $(sed -nE 's/^(Cflags|Libs): //p' "$file" | tr '\n' ' ')")
  fi
}

by_cmake() {
  mkdir -p "$work/user"
  cat > "$work/user/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(stridec 0.1 REQUIRED)
add_executable(embed $PWD/samples/c/embed.c)
target_link_libraries(embed stridec::runtime m)
add_custom_command(TARGET embed POST_BUILD COMMAND stridec::compiler --version)
PROJECT
  cmake -G Ninja -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/moved" && ninja -C "$work/user/build"
}

check "cmake --install" cmake --install "$build" --prefix "$work/prefix"
mv "$work/prefix" "$work/moved"
check "the program runs" "$work/moved/bin/stridec" --version
check "the licenses are there" test -s "$work/moved/share/doc/stridec/NOTICE" -a -s "$work/moved/share/doc/stridec/LICENSE"
check "manual pages" test -s "$work/moved/share/man/man1/stridec.1" -a -s "$work/moved/share/man/man1/stridec-compile.1"
check "shell completion" bash -n "$work/moved/share/bash-completion/completions/stridec"
check "completion for zsh and fish" test -s "$work/moved/share/zsh/site-functions/_stridec" -a \
  -s "$work/moved/share/fish/vendor_completions.d/stridec.fish"
check "samples/c/embed.c by pkg-config's file" by_pkg_config
check "samples/c/embed.c by find_package(stridec)" by_cmake
check "the header alone" cmake --install "$build" --prefix "$work/header" --component runtime
check "no program with it" test ! -e "$work/header/bin" -a -f "$work/header/include/stridec/runtime.h"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
