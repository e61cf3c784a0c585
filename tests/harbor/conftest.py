"""Which Harbor is tried: ours for tests, or with `--harbor URL` a real one."""

import os
from collections.abc import Iterator

import pytest

from tests.harbor import double
from tests.harbor.replay import Site
from tests.harbor.state import ADMIN, PASSWORD
from tests.harbor.test_conformance import NOT_FOLLOWED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--harbor",
        metavar="URL",
        help="try this Harbor, which nobody else uses: it becomes read-only for a moment, its garbage is collected, and all that"
        " was made stays; its administrator from HARBOR_USER and HARBOR_PASSWORD",
    )


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if url := request.config.getoption("--harbor"):
        user, password = os.environ.get("HARBOR_USER"), os.environ.get("HARBOR_PASSWORD")
        if not user or not password:
            raise pytest.UsageError("--harbor wants HARBOR_USER and HARBOR_PASSWORD")
        yield Site(url.rstrip("/"), user, password)
        return
    with double.started(tmp_path_factory.mktemp("harbor")) as running:
        yield Site(f"http://{running.host}", ADMIN, PASSWORD)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--harbor"):
        return
    terminalreporter.section("what the Harbor for tests does not follow")
    for what, why in NOT_FOLLOWED.items():
        terminalreporter.line(f"{what}: {why}")
