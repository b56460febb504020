"""Tests that need Go: they are skipped where it is not installed, but in CI they run and fail."""

import os
import shutil

import pytest

needs_go = pytest.mark.skipif(shutil.which("go") is None and not os.environ.get("CI"), reason="Go is not installed")
