"""The service goes on until it is ended."""

from web import address


def test_it_keeps_running(start):
    service = start(ports=[8080])
    address(service)
    assert service.running


def test_another_program_ends_by_itself(start):
    ended = start("true").wait(300)
    assert (ended.code, ended.timed_out) == (0, False)
