# An image with nothing but /allograft and /cargo-allograft, to copy them from. The context is a folder with the
# archives of a release. Builders set TARGETARCH; for one that does not: --build-arg TARGETARCH=amd64 (or arm64).
ARG VERSION=0.1.0
ARG TARGETARCH

FROM scratch AS amd64
ARG VERSION
ADD allograft-${VERSION}-x86_64-unknown-linux-musl.tar.gz /

FROM scratch AS arm64
ARG VERSION
ADD allograft-${VERSION}-aarch64-unknown-linux-musl.tar.gz /

FROM ${TARGETARCH} AS archive

FROM scratch
COPY --from=archive /allograft-*/*allograft /
