"""Builds the images of deploy/docker/Dockerfile, so that the same sources and base give the same bytes: `make image`.

Docker writes the time of the build into layers and configuration. This script takes the images from Docker, sets every
time to SOURCE_DATE_EPOCH (by default that of the last commit), gives them back to Docker, and leaves each as a file for
`docker load` and `ctr images import` in dist/, beside a list of what is in it (deploy/release/sbom.py). The format is
that of `docker save`:
https://github.com/moby/docker-image-spec/blob/main/spec.md
Labels name the base, as
https://github.com/opencontainers/image-spec/blob/main/annotations.md says.
"""

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
VERSION = (ROOT / "icestream/tracing/VERSION").read_text().strip()
TARGETS = {"collector": "-collector", "icestream": "", "full": "-full"}
"""What follows the version in the tag of each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=[*TARGETS], metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--base", default="debian:bookworm-slim", help="the image that all begin with")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files")
    parser.add_argument("--build-option", action="append", default=[], help="one more option of `docker build`")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    for target in args.targets:
        tag = f"icestream:{VERSION}{TARGETS[target]}"
        build(target, tag, args.base, epoch, args.build_option)
        file = args.out / f"{tag.replace(':', '-')}.tar"
        image_id = save(tag, args.base, epoch, file)
        docker("load", "--quiet", "--input", str(file))
        file.with_suffix(".cdx.json").write_text(list_packages(tag))
        size = int(docker("image", "inspect", "--format", "{{.Size}}", tag))
        print(f"{tag}: {size / 1e6:.0f} MB, sha256:{image_id}, {file}", flush=True)


def build(target: str, tag: str, base: str, epoch: int, options: list[str]) -> None:
    """Has Docker build an image. Its messages go to standard error."""
    arguments = {
        "BASE": base,
        "SOURCE_DATE_EPOCH": str(epoch),
        "VERSION": VERSION,
        "REVISION": _git("rev-parse", "HEAD"),
    }
    command = ["docker", "build", "--file", str(ROOT / "deploy/docker/Dockerfile"), "--target", target, "--tag", tag]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    subprocess.run([*command, *options, str(ROOT)], check=True, stdout=sys.stderr)


def save(tag: str, base: str, epoch: int, file: Path) -> str:
    """Writes an image with all its own times set to `epoch`. Layers of its base stay as they are. Returns its ID."""
    (base_image,) = json.loads(docker("image", "inspect", base))
    of_base = set(base_image["RootFS"]["Layers"])
    base_digest = (base_image["RepoDigests"] or [base_image["Id"]])[0]  # one of no registry has only an ID
    with tempfile.TemporaryDirectory(dir=file.parent) as folder, tarfile.open(file, "w") as archive:
        with _saved(tag) as image:
            (manifest,) = json.load(_member(image, "manifest.json"))
            config = json.load(_member(image, manifest["Config"]))
            layers = []
            for diff_id, path in zip(config["rootfs"]["diff_ids"], manifest["Layers"], strict=True):
                layer = Path(folder) / f"{len(layers)}.tar"
                with layer.open("wb") as out:
                    if diff_id in of_base:
                        shutil.copyfileobj(_member(image, path), out)
                    else:
                        _set_times(_member(image, path), out, epoch)
                layers.append(layer)
        hashes = [_sha256(layer) for layer in layers]
        config["rootfs"]["diff_ids"] = [f"sha256:{digest}" for digest in hashes]
        for key in ("container", "container_config"):  # the last container of the build, which has a random name
            config.pop(key, None)
        config["config"].pop("Image", None)  # the step before the last one, whose ID comes from the time of the build
        config["config"]["Labels"] |= {
            "org.opencontainers.image.base.name": base,
            "org.opencontainers.image.base.digest": base_digest.rpartition("@")[2],
        }
        config["created"] = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for step in config["history"]:
            step["created"] = config["created"]
        text = json.dumps(config, sort_keys=True).encode()
        image_id = hashlib.sha256(text).hexdigest()
        names = [f"{digest}.tar" for digest in hashes]
        _add(archive, f"{image_id}.json", text)
        for name, layer in dict(zip(names, layers, strict=True)).items():
            with layer.open("rb") as source:
                archive.addfile(_plain(name, layer.stat().st_size), source)
        manifest = [{"Config": f"{image_id}.json", "RepoTags": [tag], "Layers": names}]
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return image_id


def list_packages(tag: str) -> str:
    """Returns the SBOM of an image, JSON, made in a container."""
    command = ["docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=python", tag, "-"]
    with (ROOT / "deploy/release/sbom.py").open() as script:
        done = subprocess.run([*command, *tag.split(":")], check=True, stdin=script, stdout=subprocess.PIPE, text=True)
    return done.stdout


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextmanager
def _saved(tag: str) -> Iterator[tarfile.TarFile]:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        docker("save", "--output", file.name, tag)
        with tarfile.open(file.name) as image:
            yield image


def _set_times(source: IO[bytes], out: IO[bytes], epoch: int) -> None:
    with tarfile.open(fileobj=source) as layer, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in layer:
            entry.mtime = min(int(entry.mtime), epoch)
            entry.pax_headers = {k: v for k, v in entry.pax_headers.items() if k.startswith("SCHILY.xattr.")}
            new.addfile(entry, layer.extractfile(entry) if entry.isreg() else None)


def _member(image: tarfile.TarFile, path: str) -> IO[bytes]:
    file = image.extractfile(path)
    assert file is not None, path
    return file


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_plain(name, len(content)), io.BytesIO(content))


def _plain(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
