"""What the image starts: what was asked for and nothing else, for any user but root, to an end that is in time."""

import re

import pytest
import reach

TOKEN = "a-token-of-this-check"
LISTENS = "0A"
PORTS = {"jupyter": 8888, "ssh": 2222, "tensorboard": 6006}
STOPS_WITHIN = 9
"""Seconds; an engine that was asked to stop a container kills it after ten."""
DEAF = r"""
mkdir /tmp/bin && cd /tmp/bin
cat > jupyter <<'END'
#!/usr/bin/python3.11
import signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("", 8888))
while True:
    connection = server.accept()[0]
    try:
        while True:
            connection.send(b"H")
            time.sleep(1)
    except OSError:
        pass
END
chmod +x jupyter
PATH=/tmp/bin:$PATH exec lab jupyter
"""
"""Starts a service whose answers never end, and which does not end either when it is told to."""


@pytest.fixture
def running(start):
    """Start services, and return the container when all that was asked for answers."""

    def begin(*names, with_key=True, **wanted):
        given = {"AUTHORIZED_KEYS": reach.two_keys(start)[0][1] if with_key else "", "JUPYTER_TOKEN": TOKEN}
        made = start(*(("lab", *names) if names else ()), environment=given, **wanted)
        reach.until(lambda: is_healthy(made), "not all that was asked for answers")
        return made

    return begin


@pytest.mark.parametrize(
    ("names", "with_key", "found"),
    [
        ((), True, {"jupyter", "ssh"}),
        ((), False, {"jupyter"}),
        (("jupyter",), True, {"jupyter"}),
        (("ssh",), True, {"ssh"}),
        (("ssh", "tensorboard"), True, {"ssh", "tensorboard"}),
    ],
    ids=["all", "no-key", "jupyter", "ssh", "two"],
)
def test_what_was_asked_for_listens_and_nothing_else(names, with_key, found, running, claims):
    made = running(*names, with_key=with_key)
    assert set(PORTS) == set(claims["services"].split())
    assert open_ports(made) == {PORTS[name] for name in found}


@pytest.mark.parametrize("user", ["", "12345:0"], ids=["image", "uid"])
def test_a_read_only_root_with_a_writable_home_is_enough(user, running):
    made = running(*PORTS, user=user, read_only=True, tmpfs={"/tmp": ""}, volumes=["/home/user"])
    assert open_ports(made) == set(PORTS.values())
    assert TOKEN not in made.execute(["ps", "-eo", "args"])[1]
    assert made.execute(["whoami"]) == (0, "user\n")


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_it_ends_in_time_when_it_is_told_to(signal, running):
    made = running(*PORTS)
    tell_to_end(made, signal)
    ended = made.wait(STOPS_WITHIN)
    assert (ended.timed_out, ended.code) == (False, 0)


def test_it_ends_in_time_although_a_service_does_not_react(start):
    made = start("sh", "-c", DEAF, environment={"JUPYTER_TOKEN": TOKEN})
    reach.until(lambda: open_ports(made) == {PORTS["jupyter"]}, "the service does not listen")
    tell_to_end(made, "TERM")
    ended = made.wait(STOPS_WITHIN)
    assert (ended.timed_out, ended.code) == (False, 0)


def test_a_service_that_dies_ends_the_others_and_its_exit_code_is_passed_on(running):
    made = running("jupyter", "ssh")
    # sshd gives itself this name after it has begun to listen.
    reach.until(lambda: made.execute(["pkill", "-KILL", "-f", "sshd: /usr/sbin/sshd"])[0] == 0, "sshd has no name")
    ended = made.wait(reach.PATIENCE)
    assert (ended.timed_out, ended.code) == (False, 137)
    assert "ssh ended with 137" in made.log()


def test_health_is_bad_once_a_service_does_not_answer(running):
    made = running("jupyter")
    assert made.execute(["pkill", "-STOP", "-f", "jupyter-lab"])[0] == 0
    assert not is_healthy(made)


@pytest.mark.parametrize(
    ("words", "user", "code", "told"),
    [
        (("lab",), "0", 1, r"lab: root may not start this: .*\n"),
        (("lab",), "12345:54321", 1, r"lab: user 12345 of group 54321 cannot write to the home .*\n"),
        (("lab", "jupiter"), "", 2, r"Starts what people sit in front of(.|\n)*"),
    ],
    ids=["root", "no-home", "unknown"],
)
def test_what_cannot_be_is_refused_in_words(words, user, code, told, start):
    made = start(*words, user=user)
    assert made.wait(60).code == code
    assert re.fullmatch(told, made.log())


def test_a_second_one_is_refused(running):
    made = running("jupyter")
    code, said = made.execute(["lab", "tensorboard"])
    assert (code, said) == (1, "lab: another `lab` runs here\n")


def is_healthy(made):
    assert made.running, f"it ended: {made.log()}"
    return made.execute(["lab", "health"])[0] == 0


def tell_to_end(made, signal):
    """As the engine does: the first process gets the signal."""
    assert made.execute(["sh", "-c", f"kill -{signal} 1"])[0] == 0


def open_ports(made):
    """The ports that listen on any address but loopback; TensorBoard's own parts speak over loopback."""
    code, said = made.execute(["cat", "/proc/net/tcp", "/proc/net/tcp6"])
    assert code == 0
    rows = [line.split() for line in said.splitlines() if ":" in line]
    places = [row[1].split(":") for row in rows if row[3] == LISTENS]
    return {int(port, 16) for address, port in places if not is_loopback(address)}


def is_loopback(address):
    return address.endswith("7F") or address == "00000000000000000000000001000000"
