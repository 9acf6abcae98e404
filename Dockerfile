# hearth in a container; docs/containers.md says how to run it: docker build -t hearth .
#
# Both bases are Debian, or derived from it, with the same Python of 3.11 or newer. For an NVIDIA GPU
# (nobody has built or run this yet):
#   docker build -t hearth-cuda \
#     --build-arg BUILD_BASE=docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04 \
#     --build-arg BASE=docker.io/nvidia/cuda:12.9.1-runtime-ubuntu24.04 \
#     --build-arg CMAKE_ARGS="-DGGML_CUDA=ON -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON" .
ARG BUILD_BASE=docker.io/library/debian:trixie-slim
ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BUILD_BASE} AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# For every processor of this architecture: llama.cpp and hearth's kernels in several variants, of
# which the best is loaded. Wheels in dist/ are used instead of compiling. The cache has llama.cpp's
# wheel, so that only a new version is compiled again.
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
RUN --mount=type=cache,target=/var/cache/hearth \
    if ls dist/llama_cpp_python-*.whl dist/hearth-*.whl; then export HEARTH_WHEEL_INDEX=/src/dist; fi \
    && HEARTH_WHEELS=/var/cache/hearth ./install.sh --prefix /opt/hearth --without-torch
RUN kernels="$(echo /opt/hearth/lib/python3*/site-packages/kernels/native)" \
    && if [ ! -d "$kernels/lib" ]; then \
        mkdir "$kernels/lib" \
        && /opt/hearth/bin/python -P -m kernels.native --levels "$kernels/lib"; fi \
    && rm -rf /opt/hearth/lib/hearth

FROM ${BASE}
LABEL org.opencontainers.image.title="hearth" \
      org.opencontainers.image.description="A local model runner with an OpenAI-compatible API" \
      org.opencontainers.image.licenses="MIT"
# The user id is fixed, because the files of the volume belong to it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libgomp1 libstdc++6 python3 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 hearth \
    && useradd --uid 10001 --gid hearth --home-dir /data --no-create-home --shell /usr/sbin/nologin hearth \
    && install -d -o hearth -g hearth -m 0700 /data \
    && ln -s /opt/hearth/bin/hearth /usr/local/bin/hearth
COPY --from=build /opt/hearth /opt/hearth
# Not only on the container's own loopback, which no published port would reach: the daemon refuses
# to start there until it has a key.
ENV HEARTH_HOST=0.0.0.0:4327 \
    HEARTH_HOME=/data \
    HEARTH_NO_AUTOSTART=1
VOLUME /data
EXPOSE 4327
USER 10001:10001
WORKDIR /data
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["hearth", "status", "--ready"]
# serve becomes the daemon itself, which drains at SIGTERM and waits for its children.
ENTRYPOINT ["hearth"]
CMD ["serve"]
