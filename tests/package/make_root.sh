#!/bin/bash
# A bare root of another system, as a tar file, for tests/package.sh to install packages into:
#
#   bash tests/package/make_root.sh debian12|ubuntu24.04|debian12-image|glibc2.28 FILE.tar
#
# The first two hold the essential packages of these systems and nothing else, from their archives (mmdebstrap); the third has apt
# too, as Docker's debian:12 has. The last is glibc 2.28 built from the branch release/2.28/master of the git repository STRIDEC_GLIBC, and busybox; this takes
# about ten minutes. The exit code is 3, with a reason, where something that a root is made of is not at hand.
set -euo pipefail
name=${1:?usage: make_root.sh NAME FILE.tar} file=$(realpath -m "${2:?usage: make_root.sh NAME FILE.tar}")
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir -p "$(dirname "$file")"
lacking() { echo "$*"; exit 3; }
command -v mmdebstrap > /dev/null || lacking "mmdebstrap is not installed"

# bootstrap TARGET SUITE [ARGUMENT...]: a file or a folder.
variant=essential
bootstrap() {
  local target=$1 suite=$2
  shift 2
  mmdebstrap --mode=root --variant=$variant "$@" "$suite" "$target" "${mirror[@]}" > "$work/log" 2>&1 ||
    { tail -5 "$work/log"; lacking "no root of $suite could be made"; }
}
mirror=()

# ubuntu_keyring: a file with the key of Ubuntu's archive, which Debian 12 does not have. The key comes from the archive itself
# and is taken by its fingerprint.
ubuntu_keyring() {
  local fingerprint=F6ECB3762474EDA9D21B7022871920D1991BC93C key
  mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
  touch "$work/apt/status"
  echo "deb [trusted=yes] $ubuntu noble main" > "$work/apt/sources.list"
  cat > "$work/apt/apt.conf" <<CONF
Dir::State "$work/apt";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "root";
CONF
  (cd "$work/apt" && export APT_CONFIG=$work/apt/apt.conf && apt-get update -q && apt-get download -q ubuntu-keyring) \
    > "$work/log" 2>&1 || { tail -3 "$work/log" >&2; return 1; }
  dpkg -x "$work"/apt/ubuntu-keyring_*.deb "$work/apt/keys"
  key=$work/apt/keys/etc/apt/trusted.gpg.d/ubuntu-keyring-2018-archive.gpg
  [ "$(gpg --homedir "$work/apt" --show-keys --with-colons "$key" 2> /dev/null | sed -nE 's/^fpr:+([0-9A-F]+):$/\1/p')" = $fingerprint ] &&
    echo "$key"
}

case $name in
  debian12) bootstrap "$work/root.tar" bookworm ;;
  debian12-image)
    variant=minbase
    bootstrap "$work/root.tar" bookworm
    ;;
  ubuntu24.04)
    ubuntu=${STRIDEC_UBUNTU:-http://archive.ubuntu.com/ubuntu}
    key=$(ubuntu_keyring) || lacking "Ubuntu's archive and its key could not be had"
    mirror=("$ubuntu")
    bootstrap "$work/root.tar" noble --keyring="$key"
    ;;
  glibc2.28)
    [ -n "${STRIDEC_GLIBC:-}" ] || lacking "STRIDEC_GLIBC does not name a git repository of glibc"
    # The compiler of 2021 builds the library of 2018 without patches.
    bootstrap "$work/old" bullseye --include=gcc,make,bison,gawk,python3-minimal,libc6-dev,linux-libc-dev,busybox-static
    # Large tables of tests may lack in a partial clone; building does without them.
    mkdir -p "$work/old/glibc" "$work/old/build"
    GIT_DIR=$STRIDEC_GLIBC GIT_INDEX_FILE=$work/index git read-tree release/2.28/master
    GIT_DIR=$STRIDEC_GLIBC GIT_INDEX_FILE=$work/index git --work-tree="$work/old/glibc" checkout-index -a -f > "$work/log" 2>&1 || true
    cat > "$work/old/build.sh" <<'BUILD'
set -e
cd /build
CFLAGS="-O2 -fcommon" /glibc/configure --prefix=/usr --disable-werror --disable-profile --disable-nscd \
  --disable-timezone-tools --without-selinux --disable-sanity-checks
make
make install DESTDIR=/root228
BUILD
    nice unshare -m -p -f --mount-proc="$work/old/proc" chroot "$work/old" /bin/bash /build.sh > "$work/log" 2>&1 ||
      { tail -20 "$work/log"; exit 1; }
    root=$work/root
    mkdir -p "$root"/{bin,etc,tmp,proc,dev,lib64,usr/lib64}
    for library in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1; do
      cp -L "$(find "$work/old/root228" -name "$library" | head -1)" "$root/lib64/"
    done
    cp "$work/old/bin/busybox" "$root/bin/"
    for tool in sh ls cat tar gzip find mkdir rm test mount env grep; do ln -s busybox "$root/bin/$tool"; done
    echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
    tar -C "$root" -cf "$work/root.tar" .
    ;;
  *) echo "make_root.sh knows debian12, ubuntu24.04, debian12-image and glibc2.28, not '$name'"; exit 2 ;;
esac
cp "$work/root.tar" "$file.part"
mv "$file.part" "$file"
