"""How the checks outside reach a container: waiting, HTTP, keys, and OpenSSH's own client."""

import socket
import time
from http.cookiejar import DefaultCookiePolicy

import requests

DEADLINE = 300
"""Seconds that a service may take to start on a slow machine with a cold disk."""
PATIENCE = 120
"""Seconds that one answer may take there."""
PAIRS = "for key in a b; do ssh-keygen -q -t ed25519 -N '' -C check -f /tmp/$key && cat /tmp/$key /tmp/$key.pub; done"
OPTIONS = (
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "LogLevel=ERROR",
    "BatchMode=yes",
    "IdentitiesOnly=yes",
)


def until(condition, what):
    """What `condition` gives once that is true; fails with `what` after the deadline."""
    late = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < late, what
        time.sleep(0.1)
    return found


def browser():
    """An HTTP session that keeps no cookie, and that no proxy or netrc of this machine has a part in."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def notebooks(start, *command, **wanted):
    """Start Jupyter and wait until it answers; the container and the URL."""
    made = start(*(command or ("lab", "jupyter")), ports=[8888], **wanted)
    host, port = made.address(8888)
    with browser() as session:
        until(lambda: is_up(made, session, f"http://{host}:{port}/api"), "Jupyter does not answer")
    return made, f"http://{host}:{port}"


def is_up(made, session, url):
    assert made.running, f"it ended: {made.log()}"
    return answers(session, url)


def answers(session, url):
    try:
        return session.get(url, timeout=PATIENCE).status_code == 200
    except (requests.ConnectionError, requests.Timeout):
        return False


def two_keys(start):
    """Two pairs of keys, (private, public) each, made in a container of the image."""
    made = start("sh", "-c", PAIRS)
    assert made.wait(DEADLINE).code == 0, made.log()
    return [split(part) for part in made.log().split("-----BEGIN")[1:]]


def split(part):
    private, _, public = part.replace("\r", "").partition("\nssh-ed25519")
    return f"-----BEGIN{private}\n", f"ssh-ed25519{public}".strip()


def shells(start, *public, command=("lab", "ssh"), **wanted):
    """Start sshd with keys, and wait until its banner is seen from outside."""
    made = start(*command, ports=[2222], environment={"AUTHORIZED_KEYS": "\n".join(public)}, **wanted)
    until(lambda: banner(made).startswith(b"SSH-2.0-"), "no banner of sshd is seen from outside")
    return made


def banner(made):
    assert made.running, f"it ended: {made.log()}"
    try:
        with socket.create_connection(made.address(2222), timeout=PATIENCE) as connection:
            return connection.recv(64)
    except OSError:
        return b""


def ssh(made, private, *command, user="user", options=()):
    """Exit code and output of a command over ssh; the client is OpenSSH's, in the container itself."""
    code, said = made.execute(["sh", "-c", 'umask 077 && printf "%s" "$1" >/tmp/key', "sh", private])
    assert code == 0, said
    words = [word for option in (*OPTIONS, *options) for word in ("-o", option)]
    return made.execute(["ssh", "-F", "none", "-i", "/tmp/key", "-p", "2222", *words, f"{user}@127.0.0.1", *command])
