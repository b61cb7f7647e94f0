# docker build -t stridec . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/models" stridec compile model.onnx -o model.so
#
# The image has the package of this build and NVRTC, so that --target cpu,cuda works, and runs as a user who is not root. Any user
# and no network will do: kernels that were compiled before are kept in /cache, which may be a volume.
FROM debian:12 AS build
WORKDIR /src
COPY .ci .ci
RUN .ci/setup --build-only
COPY . .
# The times of files in the packages.
ARG SOURCE_DATE_EPOCH=0
RUN cmake -G Ninja -B build -S . -DSTRIDEC_TESTS=OFF \
  && ninja -C build stridec \
  && bash runtime/install/package.sh /packages

# NVIDIA's compiler of kernels as PyPI has it: the version of tests/requirements.txt, two libraries.
FROM debian:12-slim AS nvrtc
WORKDIR /nvrtc
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates python3-pip \
  && rm -rf /var/lib/apt/lists/*
RUN echo 'nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575' > nvrtc.txt \
  && pip download --no-cache-dir --no-deps --only-binary :all: --require-hashes -r nvrtc.txt -d wheel \
  && python3 -m zipfile -e wheel/*.whl unpacked \
  && mkdir lib \
  && cp unpacked/nvidia/cu13/lib/libnvrtc.so.13 unpacked/nvidia/cu13/lib/libnvrtc-builtins.so.13.0 lib/ \
  && cp unpacked/*.dist-info/licenses/* lib/

# The program carries its compiler and linker; it needs glibc and nothing else. NVRTC needs the C++ library too.
FROM debian:12-slim
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends libstdc++6 \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 10001 --create-home stridec \
  && install -d -m 1777 /cache
COPY --from=nvrtc /nvrtc/lib /opt/nvrtc
# The package is read where the stage left it, and no layer holds it.
RUN --mount=type=bind,from=build,source=/packages,target=/packages dpkg --install /packages/stridec_*_amd64.deb
ENV STRIDEC_NVRTC=/opt/nvrtc STRIDEC_CACHE=/cache
USER 10001
WORKDIR /models
ENTRYPOINT ["stridec"]
