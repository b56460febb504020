#!/bin/bash
# Builds Helm from its Go module into ICESTREAM_KUBERNETES (default: ~/.cache/icestream/kubernetes), and puts Kubernetes's
# OpenAPI there, unless they are there.
set -euo pipefail
version=v1.34.4
helm=v3.18.6
out=${ICESTREAM_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/icestream/kubernetes}
export GOFLAGS=-mod=mod CGO_ENABLED=0

mkdir -p "$out"
cd "$(mktemp -d)"
trap 'rm -r "$PWD"' EXIT
printf 'module icestream.invalid/tools\ngo 1.24.0\nrequire helm.sh/helm/v3 %s\n' $helm >go.mod
[ -x "$out/helm" ] || nice go build -trimpath -ldflags '-s -w' -o "$out/" helm.sh/helm/v3/cmd/helm
if [ ! -e "$out/swagger.json" ]; then
    folder=$(go mod download -json k8s.io/kubernetes@$version | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    install -m 644 "$folder/api/openapi-spec/swagger.json" "$out/swagger.json"
fi
