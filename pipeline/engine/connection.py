"""Reaching the engine, and its errors in our words."""

import _thread
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NoReturn

from pipeline import dockerhost, names
from pipeline.engine.facts import Facts, tell
from pipeline.engine.owners import Owner, gone
from pipeline.errors import PipelineError, RegistryRefused, Temporary, ToolFailed, ToolUnfit
from pipeline.toolchain import user_name

if TYPE_CHECKING:
    from docker import APIClient

TIMEOUT = 120
"""Seconds that the engine may take between two bytes of an answer."""
REMOVAL = 120.0
"""Seconds that it may take the engine to remove a container."""
REBOOT = "a process that ignores SIGKILL hangs in the kernel, mostly in a device's driver: reboot the machine"

_MARKED = {"label": names.LABEL_OWNER}
_STUCK = ("could not kill", "did not receive an exit event")
_GIVES_UP = ("unauthorized", "denied", "no basic auth", "authentication required")
_PLAIN = "server gave http response to https client"
"""Since Docker 29.10 loopback too must be listed, where `insecure-registries` is set at all."""
_PASSES = ("connection refused", "i/o timeout", "no such host", "toomanyrequests", "tls handshake", "reset by peer", "eof")


@dataclass(frozen=True)
class Engine:
    """An engine that answered; `run` and `owner` mark all that this run makes in it."""

    client: "APIClient"
    facts: Facts
    run: str
    owner: Owner = field(default_factory=Owner.current)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of what must not outlive this process."""
        return {names.LABEL_RUN: self.run, names.LABEL_OWNER: str(self.owner)}

    @property
    def local(self) -> bool:
        """Whether it is reached by a socket of this machine."""
        return self.client.base_url.startswith("http+docker://localhost")

    @property
    def native(self) -> bool:
        """Whether nothing says that it runs on another kernel: not over a network, nor in a virtual machine."""
        return self.local and not self.facts.desktop and sys.platform == "linux"

    @property
    def here(self) -> bool:
        """Whether it sees this machine's folders and network: a container that was given its socket, or ssh's end of one, does
        not."""
        return self.native and self._namesake

    @property
    def shares_loopback(self) -> bool:
        """Whether its loopback is this machine's; a rootless engine of before Docker 29.5 has a network of its own."""
        return self.here and not self.facts.rootless

    @property
    def publishes_here(self) -> bool:
        """Whether ports that it publishes on loopback are this machine's: virtual machines forward them."""
        return self._namesake or (self.local and not self.native)

    @property
    def _namesake(self) -> bool:
        return self.facts.name in ("", socket.gethostname())

    def free(self) -> int | None:
        """Free bytes in the engine's folder; `None` where that folder is not on this machine."""
        if not self.here:
            return None
        with suppress(OSError):
            return shutil.disk_usage(self.facts.root).free
        return None

    def close(self) -> None:
        """Give the connections back."""
        self.client.close()


def connect(environment: Mapping[str, str], *, run: str) -> Engine:
    """The engine that `DOCKER_HOST`, the docker context or the default socket names, cleared of what dead runs left.

    Raises `ToolUnfit` when none answers or this user may not use it.
    """
    import docker

    try:
        meant = {**environment, **dockerhost.variables(environment)}
        client = docker.from_env(environment=meant, version="auto", timeout=TIMEOUT).api
        facts = tell(client.info(), environment.get(names.ENV_MACHINE, ""))
    except (docker.errors.DockerException, OSError) as error:
        raise _unreachable(error, environment) from error
    engine = Engine(client, facts, run)
    with calling("clearing what ended runs left"):
        _sweep_containers(engine)
    return engine


def _sweep_containers(engine: Engine) -> None:
    """Remove the containers whose owner is dead."""
    for found in engine.client.containers(all=True, filters=_MARKED):
        if _left_over(engine, found, running=found.get("State") in ("running", "paused")):
            remove = partial(engine.client.remove_container, found["Id"], v=True, force=True)
            if not within(REMOVAL, partial(_unless_gone, remove)):
                raise stuck(str(found["Names"][0]).removeprefix("/"))


def sweep_images(engine: Engine) -> None:
    """Remove the half-loaded images whose owner is dead; until another load has ended well they spare it their layers."""
    for found in engine.client.images(filters=_MARKED):
        if _left_over(engine, found, running=False):
            _unless_gone(partial(engine.client.remove_image, found["Id"], noprune=True))


def inspect(engine: Engine, name: str) -> Mapping[str, Any] | None:
    """What the engine says of an image; `None` when it has none of that name."""
    from docker.errors import ImageNotFound, NotFound

    with calling(f"looking at `{name}`"):
        try:
            found: Mapping[str, Any] = engine.client.inspect_image(name)  # type: ignore[no-untyped-call]
        except (ImageNotFound, NotFound):
            return None
    return found


def _left_over(engine: Engine, found: Mapping[str, Any], *, running: bool) -> bool:
    owner = Owner.parse((found.get("Labels") or {}).get(names.LABEL_OWNER, ""))
    return owner is not None and gone(owner, me=engine.owner, running=running)


def _unless_gone(remove: Callable[[], object]) -> None:
    """Remove something that another run may be removing too."""
    from docker.errors import APIError

    try:
        remove()
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


def within(seconds: float, call: Callable[[], object]) -> bool:
    """Make a call of the SDK that has no short timeout of its own; whether it was answered in time. Raises what it raises.

    An exception that breaks the waiting (a signal handler's) is raised once the call has ended, or `seconds` later, so that
    what it makes is there to be removed. The waiting holds no lock of `threading.Thread`, whose own such an exception spoils.
    """
    ends: list[BaseException | None] = []
    bell = threading.Lock()
    bell.acquire()

    def work() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            ends.append(error)
        else:
            ends.append(None)
        bell.release()

    _thread.start_new_thread(work, ())
    try:
        bell.acquire(timeout=seconds)
    except BaseException:
        bell.acquire(timeout=seconds)
        raise
    if ends and ends[0] is not None:
        raise ends[0]
    return bool(ends)


def stuck(name: str) -> Temporary:
    """The error for a container that does not end although it was killed."""
    return Temporary(f"`{name}` was killed and does not end", hint=REBOOT)


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Translate the SDK's errors while the engine is at `what`."""
    from docker.errors import APIError, DockerException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except APIError as error:
        refuse(what, str(error.explanation or error), error)
    except (DockerException, OSError, HTTPException, HTTPError) as error:
        raise Temporary(f"the engine went away at {what}: {error}", hint="`nox -s doctor` says whether it answers") from error


def refuse(what: str, text: str, cause: BaseException | None = None) -> NoReturn:
    """Raise the error that the engine's own words `text` mean."""
    low = text.lower()
    kind: type[PipelineError] = ToolFailed
    hint = ""
    if "no space left" in low:
        kind, hint = Temporary, "`docker system df` shows what fills the engine's folder"
    elif any(words in low for words in _STUCK):
        kind, hint = Temporary, REBOOT
    elif _PLAIN in low:
        kind, hint = ToolUnfit, "add the registry to `insecure-registries` of the engine's `daemon.json`, and restart it"
    elif any(words in low for words in _GIVES_UP):
        kind, hint = RegistryRefused, "`docker login` again, as somebody who may read it"
    elif any(words in low for words in _PASSES):
        kind = Temporary
    raise kind(f"the engine failed at {what}: {text}", hint=hint) from cause


def _unreachable(error: BaseException, environment: Mapping[str, str]) -> ToolUnfit:
    causes = tuple(_causes(error))
    where = environment.get("DOCKER_HOST") or "its socket"
    if any(isinstance(cause, PermissionError) for cause in causes):
        return ToolUnfit(
            f"docker's socket refused user `{user_name()}`",
            hint=f"`sudo usermod -aG docker {user_name()}` and log in again (members of that group are as good as root), "
            "or use a rootless engine: `dockerd-rootless-setuptool.sh install`",
        )
    if any(isinstance(cause, FileNotFoundError | ConnectionRefusedError) for cause in causes):
        return ToolUnfit(f"no docker engine answers at {where}", hint="`nox -s setup` starts one, or says how")
    return ToolUnfit(f"the docker engine at {where} cannot be used: {error}", hint="`docker version` shows what it answers")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and all that it was raised for, the SDK's and urllib3's wrapping in arguments included."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        this = waiting.pop()
        if id(this) in seen:
            continue
        seen.add(id(this))
        yield this
        waiting += [x for x in (this.__cause__, this.__context__, *this.args) if isinstance(x, BaseException)]
