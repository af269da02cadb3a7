# The image of the controller: one static binary in an image without a shell, run by nobody in particular.
# `make image` builds it for amd64 and arm64; see docs/contribute/release.md for what it may be built from and with.

# The two bases, which hack/release/image.sh takes from hack/release/Dockerfile: Go with a shell, and the certificates of the authorities. Neither
# ends up in the result in part: the binary is the same whatever the builder is made of.
ARG BUILDER_IMAGE
ARG BASE_IMAGE

# Go cross-compiles, so the builder runs on the machine's own architecture: nothing is emulated.
FROM --platform=$BUILDPLATFORM ${BUILDER_IMAGE} AS builder
ARG TARGETOS
ARG TARGETARCH
# Where Go keeps modules and what it has compiled. Whoever mounts their own there names them.
ARG GOMODCACHE=/go/pkg/mod
ARG GOCACHE=/root/.cache/go-build
# Passed on to Go where they are set; empty means Go's own defaults.
ARG GOPROXY
ARG VERSION=unknown
ARG COMMIT
WORKDIR /src
COPY go.mod go.sum ./
COPY cmd/ cmd/
COPY internal/ internal/
COPY pkg/ pkg/
# Nothing of the machine, the folder, the time or the repository gets into the binary but what is named here. A builder
# whose Go is older than go.mod asks for takes that version through the module proxy, as every other build of ours does.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} GOFLAGS=-mod=readonly GOTOOLCHAIN=auto \
    go build -trimpath -buildvcs=false -o /out/karpenter-provider-bizflycloud -ldflags "-s -w -buildid= \
        -X sigs.k8s.io/karpenter/pkg/operator.Version=${VERSION} \
        -X github.com/bizflycloud/karpenter-provider-bizflycloud/internal/operator.commit=${COMMIT}" \
    ./cmd/controller

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG COMMIT
# The time of the commit, never that of the build.
ARG CREATED
LABEL org.opencontainers.image.title="karpenter-provider-bizflycloud" \
      org.opencontainers.image.description="Karpenter provider for BizFly Cloud" \
      org.opencontainers.image.vendor="The Karpenter Provider BizFly Cloud Authors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/bizflycloud/karpenter-provider-bizflycloud" \
      org.opencontainers.image.documentation="https://github.com/bizflycloud/karpenter-provider-bizflycloud#readme" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${CREATED}"
COPY LICENSE /licenses/LICENSE
COPY --from=builder /out/karpenter-provider-bizflycloud /karpenter-provider-bizflycloud
# By number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/karpenter-provider-bizflycloud"]
