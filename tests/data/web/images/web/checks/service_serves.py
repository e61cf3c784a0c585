"""The service answers as it is started by its users, and nothing of it is writable."""

import urllib.error
import urllib.request

import pytest
from web import address


def test_the_page_is_served(start):
    with urllib.request.urlopen(address(start(ports=[8080], read_only=True)), timeout=60) as answer:
        assert answer.status == 200
        assert b"<title>It serves</title>" in answer.read()


def test_what_is_not_there_is_404(start):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address(start(ports=[8080])) + "nothing", timeout=60)


def test_it_runs_as_a_user_that_is_not_root(start):
    service = start(ports=[8080])
    address(service)
    assert service.execute(["id", "-u"])[1].strip() == "1000"
