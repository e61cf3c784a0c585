"""The image `lab` as its users start it, and that its checks fail where what they prove is broken."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from platformdirs import user_cache_path

from pipeline import names
from pipeline.catalog import Catalog
from pipeline.check import Bench
from pipeline.engine import Engine
from pipeline.oci import Pinned
from pipeline.statements import Outcome
from tests.fakes import FakeRegistry
from tests.integration.conftest import Stack
from tests.integration.examination import Case, bench, catalog, engine, examined, loaded, unsaid
from tests.integration.families import PROJECT, until
from tests.integration.mutants import Mutant, breed

__all__ = ["bench", "catalog", "engine"]

LAB = (PROJECT / "images/lab/bin/lab").read_text(encoding="utf-8")
SSHD = (PROJECT / "images/lab/etc/sshd_config").read_text(encoding="utf-8")
URL = re.compile(r"http://localhost:(\d+)/lab\?token=[0-9a-f]+")
SSH = re.compile(r"ssh -p (\d+) -o \S+ user@localhost")
STARTS_WITHIN = 900.0
"""Seconds that a busy machine may need to bring the image into the engine and to start it."""
PORTS = (2222, 8888)


def otherwise(text: str, *changes: tuple[str, str]) -> bytes:
    """A file of the image after some changes, old text → new."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


CASES = {
    "notebooks without a token": Case(
        image="lab",
        mutant=Mutant(
            files={
                "usr/local/bin/lab": otherwise(
                    LAB, ('"--no-browser")', '"--no-browser", "--IdentityProvider.token=")'), ('"/lab") == 200', '"/lab") == 0')
                )
            }
        ),
        says={"jupyter": (r"lacks_the_token_is_refused\[none\]: .*kernels", "wants_no_token")},
    ),
    "a token that is everybody's": Case(
        image="lab",
        mutant=Mutant(files={"usr/local/bin/lab": otherwise(LAB, ("secrets.token_hex(24)", "'0' * 48"))}),
        says={"jupyter": ("token_of_its_own",)},
    ),
    "a door for passwords, and a host key that all share": Case(
        image="lab",
        mutant=Mutant(
            files={
                "etc/ssh/sshd_config": otherwise(
                    SSHD, ("PasswordAuthentication no", "PasswordAuthentication yes"), ("AuthenticationMethods publickey\n", "")
                ),
                "etc/ssh/ssh_host_rsa_key": b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
            }
        ),
        says={
            "tools": ("sshd_takes_keys_of_one_user",),
            "ssh": ("another_key_a_password_and_root_are_refused: .*password", "host_keys_are_made.*holds a private key"),
        },
    ),
    "a home that is not group 0's to write": Case(
        image="lab",
        mutant=Mutant(folders={"home/user": 0o755}),
        says={
            "ssh": (r"a_key_opens_a_session.*\[uid\].*cannot write to the home",),
            "services": (r"read_only_root.*\[uid\].*cannot write to the home",),
        },
    ),
    "a start that asks nobody and does not end": Case(
        image="lab",
        mutant=Mutant(
            files={
                "usr/local/bin/lab": otherwise(
                    LAB,
                    ('or ["jupyter", ', 'or ["jupyter", "tensorboard", '),
                    ("GRACE = 3.0", "GRACE = 60.0"),
                    ("os.getuid() == 0", "os.getuid() < 0"),
                )
            }
        ),
        says={
            "services": (
                r"nothing_else\[no-key\]: .*6006",
                "although_a_service_does_not_react",
                r"refused_in_words\[root\]",
            )
        },
    ),
    "no compiler": Case(
        image="lab",
        mutant=Mutant(removed=("usr/bin/g++", "usr/bin/x86_64-linux-gnu-g++-12")),
        says={"compile": (r"are_those_that_are_claimed\[g\+\+\]", "agrees_with_eager_mode")},
    ),
}


@pytest.fixture(scope="module")
def candidate(stack: Stack, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    return loaded(["lab"], stack, engine, tmp_path_factory.mktemp("loading"))["lab"]


@pytest.mark.parametrize("name", CASES)
def test_a_mutant_fails_and_the_reason_names_its_fault(
    name: str,
    registry: FakeRegistry,
    candidate: Pinned,
    bench: Bench,
) -> None:
    case = CASES[name]
    found = examined(case, breed(registry, candidate, case.mutant), bench)
    told = {one.name: one.outcome for one in found.checks if "::" not in one.name}
    assert {one: told[one] for one in case.says} == dict.fromkeys(case.says, Outcome.FAILED), found.reason
    assert unsaid(case, found) == []


def test_every_check_has_a_mutant(catalog: Catalog) -> None:
    assert {one for case in CASES.values() for one in case.says} == set(catalog.images["lab"].checks.cpu)


@dataclass(frozen=True)
class Running:
    """`pipeline run lab` as a process, and what it wrote."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """The first line that fits, waited for."""
        until(lambda: pattern.search(self.text) or self.process.poll() is not None, f"no {pattern.pattern}", STARTS_WITHIN)
        found = pattern.search(self.text)
        assert found, self.text
        return found

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a user with a key."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True, mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / ".ssh/id_ed25519"], check=True)
    return folder


@pytest.fixture
def taken() -> Iterator[None]:
    """The image's usual ports are taken, by us or by others."""
    with ExitStack() as stack:
        for port in PORTS:
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.fixture
def running(candidate: Pinned, stack: Stack, home: Path, tmp_path: Path) -> Iterator[Running]:
    """`pipeline run lab` in the home of a user."""
    cache = stack.environment.get(names.ENV_CACHE) or user_cache_path(names.DISTRIBUTION, appauthor=False)
    environment = {**stack.environment, "HOME": str(home), names.ENV_CACHE: str(cache), "PYTHONPATH": str(PROJECT)}
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "run", "--root", str(PROJECT), "lab"],
            cwd=home,
            env={name: text for name, text in environment.items() if name not in ("AUTHORIZED_KEYS", "JUPYTER_TOKEN")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    made = Running(process, log)
    try:
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(900)


@pytest.mark.usefixtures("taken")
def test_run_prints_an_address_and_an_ssh_line_that_work(running: Running, home: Path, engine: Engine) -> None:
    address, line = running.line(URL), running.line(SSH)
    assert {int(address[1]), int(line[1])}.isdisjoint(PORTS)
    assert answer(address[0]) == 200
    assert answer(f"http://localhost:{address[1]}/api/kernels") == 403
    assert login(line[0], home, "command -v python; whoami") == ["/opt/venv/bin/python", "user"]
    assert (home / ".ssh/id_ed25519.pub").read_text().split()[1] not in running.text
    assert len(holding(engine, int(address[1]))) == 1
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(900) == 0
    until(lambda: not holding(engine, int(address[1])), "its container is still there")


def answer(url: str) -> int:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=300).status_code


def login(line: str, home: Path, command: str) -> list[str]:
    """What a command prints over the ssh line, typed as it was printed, with the caller's key."""
    client, *words = shlex.split(line)
    fixed = ("BatchMode=yes", "StrictHostKeyChecking=accept-new", f"UserKnownHostsFile={home}/known_hosts")
    options = [word for option in fixed for word in ("-o", option)]
    argv = [client, "-F", "none", "-i", str(home / ".ssh/id_ed25519"), *options, *words, command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def holding(engine: Engine, port: int) -> list[str]:
    """The containers that publish a port of this machine."""
    return [one["Id"] for one in engine.client.containers() if port in (each.get("PublicPort") for each in one["Ports"])]
