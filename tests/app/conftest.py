"""One server for all tests of the explorer that leave them as they were."""

from collections.abc import Iterator
from typing import Any

import pytest

from app._pages import SMALL, Page, Server, started


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """A server for tests that leave it as it was; it has answered a run."""
    with started(tmp_path_factory.mktemp("explorer"), "--workers", "1") as running:
        with running.page() as page:
            page.run(SMALL)
        yield running


@pytest.fixture
def page(server) -> Iterator[Page]:
    """A page of that server."""
    with server.page() as connected:
        yield connected


@pytest.fixture
def opened(browser, server) -> Iterator[Any]:
    """Opens pages; after the test none of them may have had an error or asked anybody but the server."""
    from browser import visit

    with visit(browser, server) as opened:
        yield opened
