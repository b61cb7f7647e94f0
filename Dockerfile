# docker build -t stridec . && docker run --rm -v "$PWD:/models" stridec compile model.onnx -o model.so
FROM debian:12 AS build
WORKDIR /src
COPY .ci .ci
RUN .ci/setup --build-only
COPY . .
RUN cmake -G Ninja -B build -S . -DSTRIDEC_TESTS=OFF && ninja -C build stridec

# The program carries its compiler and linker; it needs glibc and nothing else.
FROM debian:12-slim
COPY --from=build /src/build/stridec /usr/local/bin/stridec
WORKDIR /models
ENTRYPOINT ["stridec"]
