#!/bin/bash
# Installs only what is missing: packages of Debian or Ubuntu, and into .venv Python packages and Apache Kafka's jars.
#
#   deploy/setup.sh run          what icestream needs to run
#   deploy/setup.sh test         what its tests need as well
#   deploy/setup.sh containers   Debian's Docker, for tests in real containers
#   deploy/setup.sh kubernetes   Debian's containerd, etcd and CNI, and Docker for images
#   deploy/setup.sh kafka        Apache Kafka
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:?run, test, containers, kernels, kubernetes or kafka}
python=${PYTHON:-python3}
missing=()

need() { # PACKAGE COMMAND...: adds the package to the missing ones if the command fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

# Not a pipe to grep -q: it ends with the first match, and then ldconfig, which still writes, fails.
has_library() { [[ $(/sbin/ldconfig -p) == *"$1"* ]]; }

java_17() { [ "$(java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')" -ge 17 ]; }

as_root() { # LINE of shell
    if [ "$(id -u)" -eq 0 ]; then
        bash -c "$1"
    elif command -v sudo >/dev/null; then
        sudo bash -c "$1"
    else
        echo "run as root: $1" >&2
        exit 1
    fi
}

need_apt() { # PACKAGE...: ends where there is no apt that could install them
    command -v apt-get >/dev/null || { echo "this is not Debian or Ubuntu: install these packages by hand: $*" >&2; exit 1; }
}

apt_install() {
    [ ${#missing[@]} -eq 0 ] && return
    need_apt "${missing[@]}"
    echo "installing ${missing[*]}"
    as_root "apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${missing[*]} >/dev/null"
}

# Only this program of the package: the rest is a server, which would be started.
fetch_promtool() {
    need_apt prometheus
    echo "fetching promtool into .venv/bin"
    local folder download=(apt-get download -qq -o APT::Sandbox::User=root prometheus)
    folder=$(mktemp -d)
    (
        cd "$folder"
        if ! "${download[@]}" 2>/dev/null; then # the lists of packages are old, or not there
            as_root "apt-get update -qq"
            "${download[@]}"
        fi
        dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
    )
    mv "$folder/usr/bin/promtool" .venv/bin/
    rm -r "$folder"
}

install_packages() { # EXTRA: installs icestream with this extra, unless it is installed in these versions
    local stamp=.venv/.installed-$1
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    if [ ! -x .venv/bin/icestream ] || [ pyproject.toml -nt "$stamp" ] || [ constraints.txt -nt "$stamp" ] ||
        [ icestream/tracing/pyproject.toml -nt "$stamp" ] || [ icestream/tracing/VERSION -nt "$stamp" ]; then
        echo "installing Python packages into .venv"
        local pip=(.venv/bin/python -m pip install -qq --disable-pip-version-check)
        local packages=(-c constraints.txt -e icestream/tracing -e ".[$1]")
        # uv takes a quarter of pip's time. It reads no settings of pip, so pip does it where uv fails.
        "${pip[@]}" -c constraints.txt uv &&
            .venv/bin/uv pip install -q --compile-bytecode --python .venv/bin/python "${packages[@]}" ||
            "${pip[@]}" "${packages[@]}"
        touch "$stamp" .venv/.installed-standalone # `test` includes `standalone`
    fi
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "$python is too old: icestream needs Python 3.11 or newer; choose one with make PYTHON=..." >&2
    exit 1
}
need python3-venv "$python" -c 'import ensurepip, venv'

case $purpose in
run)
    need libbpf1 has_library libbpf.so.1
    apt_install
    install_packages standalone
    ;;
test)
    need libbpf1 has_library libbpf.so.1
    need libbpf-dev test -e /usr/include/bpf/bpf_helpers.h
    need python3-bpfcc test -e /usr/lib/python3/dist-packages/bcc # the loader for kernels without BTF
    need clang command -v clang
    need llvm command -v llvm-strip
    need gcc command -v gcc
    need libc6-dev test -e /usr/include/stdio.h
    need musl-tools command -v musl-gcc # a second C library, whose threads keep their variables elsewhere
    need g++ command -v g++
    need libc6-dbg ls /usr/lib/debug/.build-id # debug symbols of functions that libc does not export
    need chromium command -v chromium
    need chromium-driver command -v chromedriver
    need openssl command -v openssl # makes the certificate of a test kubelet
    need debuginfod command -v debuginfod # serves debug files to a test
    need golang-go command -v go # tests read our profiles with its pprof
    need gosu command -v gosu # a program that Debian 12 built with Go 1.19, whose tables differ from later ones
    need npm command -v npm # fetches what checks the page's accessibility
    apt_install
    install_packages test
    command -v promtool >/dev/null || [ -x .venv/bin/promtool ] || fetch_promtool # evaluates alerts for a test
    axe=tests/browser/axe
    if [ $axe/package-lock.json -nt $axe/node_modules/.package-lock.json ]; then
        echo "fetching axe-core into $axe"
        npm ci --prefix $axe --silent --no-fund --no-audit --ignore-scripts
        touch $axe/node_modules/.package-lock.json
    fi
    ;;
containers)
    need docker.io command -v dockerd
    need debootstrap command -v debootstrap
    apt_install
    ;;
kubernetes)
    need docker.io command -v dockerd
    need debootstrap command -v debootstrap
    need etcd-server command -v etcd
    need containernetworking-plugins test -e /usr/lib/cni/bridge
    need iproute2 command -v ip
    apt_install
    ;;
kernels)
    need qemu-system-x86 command -v qemu-system-x86_64
    need qemu-system-arm command -v qemu-system-aarch64
    need debootstrap command -v debootstrap
    need cpio command -v cpio
    need zstd command -v zstd
    apt_install
    ;;
kafka)
    need default-jre-headless java_17
    [ -x .venv/bin/icestream ] || install_packages standalone
    if [ standalone/kafka/pom.xml -nt .venv/share/icestream/kafka ]; then
        need maven command -v mvn
        apt_install
        .venv/bin/icestream kafka --fetch
    fi
    apt_install
    ;;
*)
    echo "usage: deploy/setup.sh run|test|containers|kernels|kubernetes|kafka" >&2
    exit 2
    ;;
esac
