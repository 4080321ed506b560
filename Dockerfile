# The image holds two static binaries, the service and tasker, which moves tasks to Tasker and back. It runs as a numeric
# user with a read-only root, and keeps state in a volume.
# Build and run:
#   docker build --build-arg COMMIT="$(git rev-parse HEAD)" -t stepwell .
#   docker run --read-only -p 127.0.0.1:8080:8080 -p 127.0.0.1:8081:8081 -v stepwell:/data stepwell
# The base is named by its tag, which moves with each release of Go. To pin it, pass its digest, which
# "docker buildx imagetools inspect golang:1.26" prints: --build-arg GO_IMAGE=golang:1.26@sha256:<digest>
ARG GO_IMAGE=golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG COMMIT
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -X main.commit=$COMMIT" -o /out/stepwell . && mkdir /out/data
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/tasker ./tasker

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/stepwell /stepwell
COPY --from=build /out/tasker /tasker
COPY --from=build --chown=65532:65532 /out/data /data
ENV STEPWELL_ORCHESTRATION__WEB__LISTEN=0.0.0.0:8080 \
    STEPWELL_WORKER__WEB__LISTEN=0.0.0.0:8081 \
    STEPWELL_STORE__PATH=/data
USER 65532:65532
VOLUME /data
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s CMD ["/stepwell", "healthcheck", "--ready"]
ENTRYPOINT ["/stepwell"]
