#!/bin/bash
# Builds Helm from its Go module into ICESTREAM_KUBERNETES (default: ~/.cache/icestream/kubernetes), and puts Kubernetes's
# OpenAPI there, unless they are there. `build_tools.sh node` builds what a node needs too, in ten minutes of CPU.
set -euo pipefail
version=v1.34.4
helm=v3.18.6
coredns=v1.12.4
out=${ICESTREAM_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/icestream/kubernetes}
export GOFLAGS=-mod=mod CGO_ENABLED=0
build=(nice go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$out/")

mkdir -p "$out"
cd "$(mktemp -d)"
trap 'rm -r "$PWD"' EXIT
printf 'module icestream.invalid/tools\ngo 1.24.0\nrequire helm.sh/helm/v3 %s\n' $helm >go.mod
[ -x "$out/helm" ] || "${build[@]}" helm.sh/helm/v3/cmd/helm
folder=$(go mod download -json k8s.io/kubernetes@$version | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
[ -e "$out/swagger.json" ] || install -m 644 "$folder/api/openapi-spec/swagger.json" "$out/swagger.json"
[ "${1:-}" = node ] || exit 0

# Kubernetes's module has these modules as folders, which `go build` of another module does not take.
{
    printf 'module icestream.invalid/tools\ngo 1.24.0\nrequire k8s.io/kubernetes %s\n' $version
    printf 'require github.com/coredns/coredns %s\n' $coredns
    sed -n "s|^\t\(k8s.io/[^ ]*\) => ./staging/.*|replace \1 => \1 ${version/v1/v0}|p" "$folder/go.mod"
} >go.mod
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
    [ -x "$out/$program" ] || "${build[@]}" k8s.io/kubernetes/cmd/$program
done
mkdir -p coredns
cat >coredns/main.go <<'END_OF_GO'
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
END_OF_GO
[ -x "$out/coredns" ] || "${build[@]}" ./coredns
