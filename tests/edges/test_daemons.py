"""Services that outlive a run, on small real processes: found again, never mistaken, stopped by id."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import daemons
from pipeline.daemons import Service
from pipeline.errors import ToolFailed
from pipeline.story import Silent

LISTENER = """
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
time.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    daemons.stop_all(tmp_path)


def listener(folder: Path, code: str = LISTENER) -> Service:
    path = folder / "s"
    return Service(
        name="listener",
        argv=(sys.executable, "-S", "-c", code, str(path)),
        environment={"PATH": os.environ["PATH"]},
        answers=lambda: daemons.listens(path),
        prepare=lambda: path.unlink(missing_ok=True),
    )


def record(folder: Path) -> dict[str, object]:
    data: dict[str, object] = json.loads((folder / "listener.json").read_text())
    return data


def start(folder: Path) -> int:
    daemons.start(listener(folder), folder=folder, story=Silent())
    return int(str(record(folder)["pid"]))


def test_a_service_is_started_once_and_stopped_by_id(folder: Path) -> None:
    pid = start(folder)
    assert start(folder) == pid
    assert daemons.running(folder) == {"listener": pid}
    assert daemons.stop_all(folder) == ("listener",)
    assert daemons.birth(pid) == ""
    assert daemons.stop_all(folder) == ()


def test_two_that_start_at_once_get_one_service(folder: Path) -> None:
    threads = [threading.Thread(target=start, args=(folder,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folder / "listener.log").read_text() == ""
    assert len(daemons.running(folder)) == 1


def test_after_a_kill_the_socket_that_is_left_fools_nobody(folder: Path) -> None:
    pid = start(folder)
    os.kill(pid, 9)
    while daemons.birth(pid):
        time.sleep(0.01)
    assert (folder / "s").exists()
    assert not daemons.listens(folder / "s")
    assert start(folder) != pid


def test_a_service_whose_starter_was_killed_before_it_noted_the_id_is_recognised(folder: Path) -> None:
    pid = start(folder)
    (folder / "listener.json").write_text(json.dumps({**record(folder), "pid": 0, "born": ""}))
    assert start(folder) == pid
    assert record(folder)["pid"] == pid


def test_a_reused_process_id_is_never_taken_for_ours_nor_stopped(folder: Path) -> None:
    stranger = start(folder)
    (folder / "other.json").write_text(json.dumps({"argv": ["/nowhere"], "pid": stranger, "born": "another-boot/7"}))
    assert "other" not in daemons.running(folder)
    (folder / "listener.json").rename(folder / "kept")
    assert daemons.stop_all(folder) == ()
    assert daemons.birth(stranger)
    (folder / "kept").rename(folder / "listener.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"argv": 1}'])
def test_a_damaged_record_is_no_record(folder: Path, text: str) -> None:
    (folder / "listener.json").write_text(text)
    assert daemons.running(folder) == {}
    assert start(folder)


def test_a_service_that_ends_at_its_start_shows_the_end_of_its_log(folder: Path) -> None:
    broken = listener(folder, "import sys; sys.exit('no such luck')")
    with pytest.raises(ToolFailed, match="no such luck"):
        daemons.start(broken, folder=folder, story=Silent())


def test_a_service_gets_no_secrets_of_the_environment() -> None:
    from pipeline.toolchain import Host

    host = Host(
        root=False,
        user="x",
        linux=True,
        suite="",
        systemd=False,
        environment={"PATH": "/a", "https_proxy": "http://p", "AWS_SECRET_ACCESS_KEY": "x", "SSL_CERT_FILE": "/ca"},
    )
    given = daemons.handed_down(host)
    assert given == {"PATH": "/a:/usr/local/sbin:/usr/sbin:/sbin", "https_proxy": "http://p", "SSL_CERT_FILE": "/ca"}


def served(answer: bytes) -> tuple[str, int]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        link, _ = server.accept()
        with link, server:
            link.recv(4096)
            link.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    name, port = server.getsockname()
    return name, port


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", (200, b"body")),
        (b"HTTP/1.0 401 Unauthorized\r\n\r\n", (401, b"")),
        (b"SSH-2.0-OpenSSH_9.2\r\n", (0, b"")),
        (b"", (0, b"")),
        (b"HTTP/1.1", (0, b"")),
    ],
)
def test_an_answer_that_is_not_http_is_an_answer_all_the_same(answer: bytes, expected: tuple[int, bytes]) -> None:
    reply = daemons.ask(served(answer), "/v2/")
    assert reply is not None
    assert (reply.status, reply.body) == expected


def test_where_nobody_listens_there_is_no_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert daemons.ask(("127.0.0.1", port), "/") is None
    assert daemons.ask(tmp_path / "none.sock", "/") is None


def test_who_holds_a_port_is_told_by_id_and_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        holder = daemons.holder(server.getsockname()[1])
    assert holder is not None
    assert holder[0] == os.getpid()
