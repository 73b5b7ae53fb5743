# Rust with its musl target, and musl-gcc for C. The libc.a of each is grafted. For a fixed base image, name it with
# its digest: --build-arg BASE=docker.io/library/rust@sha256:...
ARG ALLOGRAFT=localhost/allograft:0.1.0
ARG BASE=docker.io/library/rust:1.90.0-slim-bookworm

FROM ${ALLOGRAFT} AS allograft

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends musl-tools \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl"
COPY --from=allograft /allograft /cargo-allograft /usr/local/bin/
ARG DONOR=snmalloc
RUN set -eu; \
    rust=$(rustc --print target-libdir --target "$(uname -m)-unknown-linux-musl"); \
    for libc in "/usr/lib/$(uname -m)-linux-musl/libc.a" "$rust/self-contained/libc.a"; do \
        allograft graft "$libc" --donor "$DONOR"; \
        allograft verify --static-only "$libc"; \
        allograft inspect --expect "$DONOR" "$libc"; \
    done
