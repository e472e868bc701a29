# An image with the command, its libraries, and Debian's verbs programs to try: docker build -t nicety .

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# The package has the file list of git.
RUN cargo xtask deb

FROM debian:bookworm-slim
RUN --mount=type=bind,from=build,source=/source/target/deb,target=/packages \
    apt-get update \
    && apt-get install -y --no-install-recommends /packages/nicety_*.deb ibverbs-utils rdmacm-utils \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home nicety
USER nicety
WORKDIR /home/nicety
ENTRYPOINT ["nicety"]
CMD ["--help"]
