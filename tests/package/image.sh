#!/bin/bash
# The Dockerfile's image, built without a daemon (buildah) and used:
#
#   bash tests/package/image.sh BASE.tar PACKAGES MODEL.onnx        BASE: make_root.sh debian12-image
#   bash tests/package/image.sh --whole BASE.tar MODEL.onnx         the first stage too, which builds stridec: hours
#
# Without --whole the first stage is an image that holds PACKAGES where the stage would leave them; the other stages are built
# as they are written. The program then runs by the image's entry point, as its user and as another, with a model's folder mounted.
set -euo pipefail
whole=
[ "$1" != --whole ] || { whole=1 && shift; }
base=$(realpath "$1") model=$(realpath "${!#}")
[ -n "$whole" ] || packages=$(realpath "$2")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
export BUILDAH_ISOLATION=chroot
image() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
trap 'image rm --all > /dev/null 2>&1; image rmi --all --force > /dev/null 2>&1; rm -rf --one-file-system "$work"' EXIT
step() { echo "== $*"; }

# image_of NAME FOLDER PATH: an image of nothing but the folder's files, at PATH.
image_of() {
  local container mounted
  container=$(image from scratch)
  mounted=$(image mount "$container")
  mkdir -p "$mounted$3"
  cp -a "$2/." "$mounted$3/"
  image commit -q "$container" "$1" > /dev/null
  image rm "$container" > /dev/null
}

step "base"
# The base trusts what this machine trusts, for a network behind a proxy that has its own certificate.
mkdir "$work/base"
tar -C "$work/base" -xf "$base"
cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/machine.crt"
printf '[global]\ncert = /etc/machine.crt\n' > "$work/base/etc/pip.conf"
image_of docker.io/library/debian:12-slim "$work/base" /
rm -rf --one-file-system "$work/base"
file=Dockerfile
if [ -n "$whole" ]; then
  image tag docker.io/library/debian:12-slim docker.io/library/debian:12
else
  image_of localhost/packages "$packages" /packages
  file=$work/Dockerfile
  awk '/^FROM / { skip = / AS build$/; if (skip) print "FROM localhost/packages AS build" } !skip' Dockerfile > "$file"
fi
step "build"
image build --pull-never --format docker -q -t stridec -f "$file" .
image inspect --type image --format '{{.Docker.Config.User}} {{.Docker.Config.WorkingDir}} {{.Docker.Config.Entrypoint}}' stridec | tee "$work/config"
[ "$(cat "$work/config")" = "10001 /models [stridec]" ] || { echo "another user, folder or entry point"; exit 1; }

# run USER ARGUMENT...: as `docker run --user USER -v MODELS:/models stridec ARGUMENT...`.
container=$(image from --pull-never stridec)
mkdir -m 1777 "$work/models"
cp "$model" "$work/models/model.onnx"
run() {
  local user=$1
  shift
  image run --user "$user" -v "$work/models:/models" "$container" -- stridec "$@"
}
for user in 10001 12345:12345; do
  step "as user $user"
  run "$user" --version
  run "$user" compile model.onnx -o "model.${user%:*}.so" --target cpu,cuda --gpu sm_80,ptx --progress plain
  run "$user" run "model.${user%:*}.so" --random --dim n=3
  [ "$(stat -c %u "$work/models/model.${user%:*}.so")" = "${user%:*}" ] || { echo "the file has another owner"; exit 1; }
done
step "the same library whoever compiles it"
cmp "$work"/models/model.*.so
step "size"
du -shx "$(image mount "$container")" | cut -f1
echo "== done"
