# Alpine with its C and C++ compilers. Its libc.a is grafted. For a fixed base image, name it with its digest:
# --build-arg BASE=docker.io/library/alpine@sha256:...
ARG ALLOGRAFT=localhost/allograft:0.1.0
ARG BASE=docker.io/library/alpine:3.22

FROM ${ALLOGRAFT} AS allograft

FROM ${BASE}
RUN apk add --no-cache build-base
COPY --from=allograft /allograft /usr/local/bin/
ARG DONOR=snmalloc
RUN allograft graft /usr/lib/libc.a --donor "$DONOR" \
    && allograft verify --static-only /usr/lib/libc.a \
    && allograft inspect --expect "$DONOR" /usr/lib/libc.a
