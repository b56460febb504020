#!/bin/sh
# Installs icestream with the parts EXTRAS into /opt/icestream, which deploy/docker/Dockerfile copies into an image.
set -eu
extras=$1
home=/opt/icestream

python3 -m venv --without-pip $home
pip --python $home/bin/python install -q --no-cache-dir --no-compile --no-index --find-links /wheels "icestream[$extras]"
cd $home/lib/python3*/site-packages

# Nothing here is tested, compiles code or checks types; nothing speaks Arrow's Flight, or asks zstandard for its slower
# half. Only the image `full` has a lake, and the collector's has only the collector.
find . -type d -name tests -prune -exec rm -r {} +
find . \( -name '*.pyi' -o -name '*.pxd' -o -name '*.a' -o -name '*_tests.*.so' -o -name '_simd.*.so' \) -delete
rm -rf numpy/distutils numpy/f2py numpy/_core/include pyarrow/include pyarrow/*flight*.so* zstandard/*cffi*
[ "$extras" = standalone ] || rm -rf deltalake deltalake-* deltalake.libs arro3 arro3_core-*
[ "$extras" != collector ] || rm -r api gateway jobs sinks standalone streams numpy/random numpy/polynomial
# Wheels have symbols for debuggers: 72 of symbolic's 78 MB. strip damages the libraries in numpy.libs.
find . -name numpy.libs -prune -o \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
# The files are read-only, and all have the time of the image: compiled ones are not compared with them.
find $home -name __pycache__ -prune -exec rm -r {} +
$home/bin/python -m compileall -q --invalidation-mode unchecked-hash $home/lib
install -m 644 /usr/src/icestream/deploy/docker/healthy.py $home/

# What was removed is not needed: every command can be loaded, but for those that need a lake in an image without, and
# numpy, which imports parts of itself when they are called, makes an unwinding table.
$home/bin/python - <<'END'
import importlib.util
from importlib.metadata import entry_points

lake = importlib.util.find_spec("deltalake")
for entry in entry_points(group="icestream.commands"):
    if importlib.util.find_spec(entry.module.partition(".")[0]) and (lake or entry.name not in ("backfill", "lake", "replay")):
        entry.load()

from collector.unwind.tables.vdso import vdso_table

assert vdso_table()
END
