# A daprd that loads pluggable lock stores (conformance/daprd), in the layout
# of Dapr's own image, for the annotation dapr.io/sidecar-image.
#
#   docker build --file deploy/daprd.Dockerfile --tag example/daprd-locks:1.18.2 .

FROM golang:1.26 AS build
WORKDIR /src
COPY conformance/daprd .
RUN CGO_ENABLED=0 ./build /daprd

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /daprd /daprd
USER 65532:65532
ENTRYPOINT ["/daprd"]
