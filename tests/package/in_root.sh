#!/bin/bash
# Installs a package in a bare root and uses it there as a person would who is not root:
#
#   bash tests/package/in_root.sh ROOT.tar PACKAGE.deb|PACKAGE.tar.gz MODEL.onnx ARTIFACT.so
#
# MODEL has one dim, n. The artifact that it compiles to must have the bytes of ARTIFACT. A .deb is also checked by its sums, and
# is removed again without leaving a file.
set -euo pipefail
root_tar=$(realpath "$1") package=$(realpath "$2") model=$(realpath "$3") artifact=$(realpath "$4")
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
tar -C "$root" -xf "$root_tar"
mkdir -p "$root/srv" "$root/proc"
cp "$package" "$root/tmp/"
cp "$model" "$root/srv/model.onnx"
chmod 1777 "$root/srv"
file=/tmp/${package##*/}

# inside USER COMMAND...: a process of its own, with /proc and nothing else of this machine, no network, and a plain environment.
inside() {
  local user=$1
  shift
  unshare -m -n -p -f --mount-proc="$root/proc" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv LC_ALL=C \
    chroot --userspec="$user:$user" "$root" "$@"
}
step() { echo "== $*"; }

case $package in
  *.deb)
    step "dpkg --install"
    inside 0 dpkg --install "$file"
    inside 0 dpkg --verify stridec
    stridec=stridec
    ;;
  *)
    step "tar -x"
    inside 0 tar -C /srv -xzf "$file"
    stridec=/$(cd "$root" && echo srv/stridec-*/bin/stridec)
    ;;
esac

step "version"
inside 1000 "$stridec" --version
step "compile, run, verify"
inside 1000 "$stridec" check /srv/model.onnx
inside 1000 "$stridec" compile --cpu x86-64-v3 /srv/model.onnx -o /srv/model.so
inside 1000 "$stridec" run /srv/model.so --random --dim n=3
inside 1000 "$stridec" verify /srv/model.onnx /srv/model.so --dim n=5
cmp "$artifact" "$root/srv/model.so"
step "exit codes"
code=0
inside 1000 "$stridec" compile /srv/missing.onnx -o /srv/missing.so || code=$?
[ $code = 2 ] || { echo "exit code $code of a missing file"; exit 1; }

case $package in
  *.deb)
    step "dpkg --remove"
    inside 0 dpkg --purge stridec
    left=$(find "$root" -xdev -path "$root/srv" -prune -o -path "$root/tmp" -prune -o -path "$root/proc" -prune -o -name '*stridec*' -print)
    [ -z "$left" ] || { echo "left: $left"; exit 1; }
    ;;
esac
echo "== done"
