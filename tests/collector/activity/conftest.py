"""What tests of trace contexts share."""

from collections.abc import Iterator

import pytest

from tests.collector.activity.publishing import Told


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    told.contexts.start()
    yield told
    told.contexts.close()
