"""What the checks of this image share: waiting, a session over HTTP, keys, and OpenSSH's own client."""

import socket
import time
from http.cookiejar import DefaultCookiePolicy

import pytest

DEADLINE = 90
"""Seconds that a service may take to answer on a slow machine."""


@pytest.fixture
def until():
    def wait(condition, what):
        late = time.monotonic() + DEADLINE
        while not (found := condition()):
            assert time.monotonic() < late, what
            time.sleep(0.1)
        return found

    return wait


@pytest.fixture
def browser():
    """An HTTP session that keeps no cookie, and that no proxy or netrc of this machine has a part in."""
    import requests

    with requests.Session() as session:
        session.trust_env = False
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield session


@pytest.fixture
def notebooks(start, until, browser):
    """Start Jupyter, wait until it answers, and return the container and the URL."""

    def begin(*command, **wanted):
        made = start(*(command or ("lab", "jupyter")), ports=[8888], **wanted)
        host, port = made.address(8888)
        until(lambda: is_up(made, browser, f"http://{host}:{port}/api"), "Jupyter does not answer")
        return made, f"http://{host}:{port}"

    return begin


def is_up(made, browser, url):
    import requests

    assert made.running, f"it ended: {made.log()}"
    try:
        return browser.get(url, timeout=10).status_code == 200
    except requests.ConnectionError:
        return False


@pytest.fixture
def keys(start):
    """Two pairs of keys, (private, public) each, made in a container of the image."""
    made = start(
        "sh", "-c", "for key in a b; do ssh-keygen -q -t ed25519 -N '' -C check -f /tmp/$key; cat /tmp/$key /tmp/$key.pub; done"
    )
    assert made.wait(DEADLINE).code == 0, made.log()
    parts = made.log().split("-----BEGIN")[1:]
    return [(f"-----BEGIN{private}-----END{end}\n", f"ssh-ed25519{public}".strip()) for private, end, public in map(split, parts)]


def split(part):
    private, _, rest = part.partition("-----END")
    end, _, public = rest.partition("\nssh-ed25519")
    return private, end, public


@pytest.fixture
def shells(start, until):
    """Start sshd with keys, wait until its banner is seen from outside, and return the container."""

    def begin(*public, command=("lab", "ssh"), **wanted):
        made = start(*command, ports=[2222], environment={"AUTHORIZED_KEYS": "\n".join(public)}, **wanted)
        until(lambda: banner(made).startswith(b"SSH-2.0-"), "no banner of sshd is seen from outside")
        return made

    return begin


def banner(made):
    assert made.running, f"it ended: {made.log()}"
    try:
        with socket.create_connection(made.address(2222), timeout=10) as connection:
            return connection.recv(64)
    except OSError:
        return b""


@pytest.fixture
def ssh():
    """Run a command over ssh with a private key; the client is OpenSSH's, in the container itself."""

    def connect(made, private, *command, user="user", options=()):
        write = 'umask 077 && printf "%s" "$1" >/tmp/key'
        code, said = made.execute(["sh", "-c", write, "sh", private])
        assert code == 0, said
        fixed = (
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
            "IdentitiesOnly=yes",
        )
        words = [word for option in (*fixed, *options) for word in ("-o", option)]
        return made.execute(["ssh", "-F", "none", "-i", "/tmp/key", "-p", "2222", *words, f"{user}@127.0.0.1", *command])

    return connect
