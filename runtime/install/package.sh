#!/bin/bash
# Packages of a build: stridec_VERSION_amd64.deb and stridec-VERSION-x86_64.tar.gz, of what `cmake --install` installs.
#
#   bash runtime/install/package.sh OUT_FOLDER        with build=FOLDER, default: build
#
# The program needs glibc 2.28 and nothing else (cli/old_glibc), so the tarball runs on any distribution since then. Both
# files have the same bytes each time: names are sorted, owners are root, and times are SOURCE_DATE_EPOCH, by default
# that of the last commit. Where there is no repository SOURCE_DATE_EPOCH must be set.
set -euo pipefail
out=${1:?usage: package.sh OUT_FOLDER}
cd "$(dirname "$0")/../.."
build=${build:-build}
mkdir -p "$out"
out=$(realpath "$out")
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022
version=$(sed -nE 's/^project\(stridec VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# files PREFIX FOLDER: installs below FOLDER, with the modes and times of a package.
install_files() {
  DESTDIR="$2" cmake --install "$build" --prefix "$1" > /dev/null
  find "$2" -type d -exec chmod 755 {} +
  find "$2" -type f -exec chmod 644 {} +
  chmod 755 "$2$1/bin/stridec"
}
same_times() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }
archive() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf - "${@:2}"; }

# The tarball: one folder, which works wherever it is unpacked.
name=stridec-$version-x86_64
install_files "/$name" "$work/tar"
archive "$work/tar" "$name" | gzip -n -6 > "$out/$name.tar.gz"

# The package.
root=$work/deb
install_files /usr "$root"
find "$root/usr/share/man" -name '*.1' -exec gzip -n -9 {} +
doc=$root/usr/share/doc/stridec
mv "$doc/LICENSE" "$doc/copyright"
gzip -n -9 < CHANGELOG.md > "$doc/changelog.gz"
mkdir -p "$root/DEBIAN"
cat > "$root/DEBIAN/control" <<CONTROL
Package: stridec
Version: $version
Architecture: amd64
Maintainer: stridec <stridec@localhost>
Installed-Size: $(du -k --apparent-size -s "$root/usr" | cut -f1)
Depends: libc6 (>= 2.28)
Section: devel
Priority: optional
Description: ahead-of-time compiler for neural networks
 Takes an ONNX or PyTorch model and writes one shared library that needs nothing but libc. This package has the
 program, the headers of the C API and of plug-ins, pkg-config and CMake files, manual pages and completion.
CONTROL
(cd "$root" && find usr -type f | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
same_times "$root"
dpkg-deb --root-owner-group -Zgzip -z6 --build "$root" "$out/stridec_${version}_amd64.deb" > /dev/null

cd "$out"
sha256sum "$name.tar.gz" "stridec_${version}_amd64.deb" | tee SHA256SUMS
