"""What pyproject.toml cannot say: icestream needs the icestream-tracing of its own version."""

from pathlib import Path

from setuptools import setup

setup(install_requires=[f"icestream-tracing=={Path('icestream/tracing/VERSION').read_text().strip()}"])
