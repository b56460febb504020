"""What brings the eBPF programs into the kernel: a test that takes `loader` runs once with each."""

import pytest


@pytest.fixture(params=["libbpf", "bcc"])
def loader(request: pytest.FixtureRequest) -> str:
    """For the setting `loader`. Where a loader lacks its packages, its tests fail: deploy/setup.sh installs them."""
    return str(request.param)
