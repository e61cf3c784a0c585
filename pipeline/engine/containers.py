"""Running a container: files in, a hard deadline that this side keeps, files and a bounded log out, always removed."""

import io
import math
import secrets
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipeline import names
from pipeline.command import BUSY
from pipeline.engine.connection import Engine, calling, stuck, within
from pipeline.engine.spec import LOG_LIMIT, Spec, host_config
from pipeline.errors import PipelineError, Temporary, ToolFailed, ToolUnfit
from pipeline.story import Story

BEAT = 3.0
"""Seconds between looks at a running container."""
ATTEMPTS = 3
CREATION = 300.0
"""Seconds that the engine may take to create a container."""
DYING = 120.0
"""Seconds that a killed container may take to end, and to be removed: longer takes only what hangs in the kernel."""
NO_GPU = "could not select device driver"
"""What the engine says when GPUs are asked for and it has no way to hand them out (moby `daemon/devices.go`)."""
REFUSALS = (
    NO_GPU,
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-cdi-hook",
    "unresolvable cdi device",
    "cdi device inj",
    "no known gpu vendor",
)
"""In the engine's words, in lower case: it, or what it runs for that, cannot hand out GPUs that were asked for."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a container ended; `code` is 137 when it was killed."""

    code: int
    timed_out: bool
    out_of_memory: bool
    seconds: float


@dataclass(frozen=True)
class Container:
    """A container that exists."""

    engine: Engine
    name: str

    def put(self, folder: str, archive: bytes) -> None:
        """Unpack a tar archive into `folder`, also before the start and with a read-only root if it is a volume."""
        with calling(f"copying into `{self.name}`"):
            self.engine.client.put_archive(self.name, folder, archive)

    def get(self, path: str, limit: int) -> bytes | None:
        """The content of one file inside, also after the end; `None` when there is none. More than `limit` bytes is an error."""
        from docker.errors import NotFound

        with calling(f"copying `{path}` out of `{self.name}`"):
            try:
                chunks, _ = self.engine.client.get_archive(self.name, path)
                packed = _bounded(chunks, limit, path)
            except NotFound:
                return None
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            member = archive.next()
            content = archive.extractfile(member) if member and member.isfile() else None
            return content.read() if content else None

    def start(self) -> None:
        """Start it; raises `ToolUnfit` when its program is not there, `Temporary` when it cannot be given its GPUs."""
        from docker.errors import APIError

        with calling(f"starting `{self.name}`"):
            try:
                self.engine.client.start(self.name)
            except APIError as error:
                if kind := not_started(str(error.explanation or error), self.name):
                    raise kind from error
                raise

    def wait(self, deadline: float, *, beat: Callable[[], None] = lambda: None) -> Ended:
        """Wait for the end, `deadline` seconds at most, then kill it; `beat` is called every `BEAT` seconds."""
        started = time.monotonic()
        while not (over := self._over(min(BEAT, deadline))) and time.monotonic() - started < deadline:
            beat()
        if not over:
            self._kill()
        state = self._state()
        return Ended(
            code=int(state.get("ExitCode", -1)),
            timed_out=not over,
            out_of_memory=bool(state.get("OOMKilled")),
            seconds=time.monotonic() - started,
        )

    def log(self) -> str:
        """What it wrote to stdout and stderr, the newest `LOG_LIMIT` bytes."""
        with calling(f"reading the log of `{self.name}`"):
            return bytes(self.engine.client.logs(self.name, stdout=True, stderr=True))[-LOG_LIMIT:].decode(errors="replace")

    def address(self, port: int) -> tuple[str, int]:
        """Where this machine reaches a port of it."""
        with calling(f"looking at `{self.name}`"):
            found = self.engine.client.port(self.name, port)
        if not found:
            raise ToolFailed(f"`{self.name}` publishes no port {port}: it ended, or the port was not asked for")
        return found[0]["HostIp"], int(found[0]["HostPort"])

    def execute(self, command: Sequence[str], *, user: str = "", deadline: float = 300.0) -> tuple[int, str]:
        """Run a program beside the main one; its exit status and output. Raises `Temporary` past `deadline` seconds."""
        client, output = self.engine.client, list[bytes]()
        with calling(f"running `{command[0]}` in `{self.name}`"):
            key = client.exec_create(self.name, list(command), user=user)["Id"]
            # the SDK reads an exec's output without any timeout
            if not within(deadline, lambda: output.append(client.exec_start(key))):
                raise Temporary(f"`{command[0]}` in `{self.name}` did not end within {deadline:.0f} s", hint=BUSY)
            code = client.exec_inspect(key)["ExitCode"]
        return int(code), output[0].decode(errors="replace")

    @property
    def running(self) -> bool:
        """Whether its program still runs."""
        return bool(self._state().get("Running"))

    def _over(self, deadline: float) -> bool:
        from requests.exceptions import ConnectionError as Broken
        from requests.exceptions import ReadTimeout

        with calling(f"waiting for `{self.name}`"):
            try:
                self.engine.client.wait(self.name, timeout=math.ceil(deadline))
            except ReadTimeout:
                return False
            except Broken as error:
                # over a unix socket a read timeout arrives as a broken connection
                if "timed out" not in str(error).lower():
                    raise
                return False
        return True

    def _kill(self) -> None:
        """Ask for the kill and look at the end by ourselves: some engines answer only when the container has ended."""
        from docker.errors import APIError

        with calling(f"killing `{self.name}`"), suppress(APIError):
            within(DYING, lambda: self.engine.client.kill(self.name))
        if not self._over(DYING):
            raise stuck(self.name)

    def _state(self) -> Mapping[str, Any]:
        with calling(f"looking at `{self.name}`"):
            state: Mapping[str, Any] = self.engine.client.inspect_container(self.name)["State"]
        return state


def not_started(text: str, name: str) -> PipelineError | None:
    """The error that the engine's words `text` at a start mean, where they are known: the machine's, or the image's."""
    low, message = text.lower(), f"`{name}` cannot be started: {text.strip()}"
    if any(words in low for words in REFUSALS):
        return Temporary(message, hint="`nox -s doctor` looks at driver, GPUs and NVIDIA's container toolkit")
    if "executable file not found" in low or "no such file or directory" in low:
        return ToolUnfit(message)
    return None


@contextmanager
def container(spec: Spec, *, engine: Engine, story: Story, title: str, keep: bool = False) -> Iterator[Container]:
    """A created container, removed at the end whatever happens; with `keep` it stays, and the story says how to enter it."""
    made = Container(engine, f"{names.COMMAND}-{title}-{secrets.token_hex(4)}")
    kept = False
    try:
        _create(spec, made, labels={names.LABEL_RUN: engine.run} if keep else engine.labels)
        kept = keep
        yield made
    finally:
        if kept:
            _say_how_to_enter(spec, made, story)
        else:
            _remove(made)


def _create(spec: Spec, made: Container, labels: Mapping[str, str]) -> None:
    """An interrupt waits until it is there, and so can be removed."""
    create = partial(
        made.engine.client.create_container,
        spec.image,
        name=made.name,
        command=list(spec.command) or None,
        entrypoint=list(spec.entrypoint) or None,
        user=spec.user or None,
        environment=dict(spec.environment),
        labels=dict(labels),
        volumes=list(spec.volumes) or None,
        ports=list(spec.ports) or None,
        host_config=host_config(spec, made.engine),
    )
    with calling(f"creating `{made.name}`"):
        if not within(CREATION, create):
            raise Temporary(f"the engine has not created `{made.name}` after {CREATION:.0f} s", hint=BUSY)


def _remove(made: Container) -> None:
    """Remove a container, also one that is being removed or does not answer at once; an interrupt does not skip it."""
    from docker.errors import NotFound

    remove = partial(made.engine.client.remove_container, made.name, v=True, force=True)
    answered = True
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with suppress(NotFound), calling(f"removing `{made.name}`"):
                answered = within(DYING, remove)
        except (ToolFailed, Temporary):
            if attempt == ATTEMPTS:
                raise
            time.sleep(attempt)
        else:
            break
    if not answered:
        raise stuck(made.name)


def _bounded(chunks: Iterator[bytes], limit: int, path: str) -> bytes:
    packed = bytearray()
    for chunk in chunks:
        packed += chunk
        if len(packed) > limit + 16 * tarfile.BLOCKSIZE:
            raise ToolFailed(f"`{path}` is larger than {limit} bytes")
    return bytes(packed)


def _say_how_to_enter(spec: Spec, made: Container, story: Story) -> None:
    enter = f"docker exec -it {made.name} sh"
    if not made.running:
        enter = f"docker run -it --rm --network none --volumes-from {made.name} --entrypoint sh {spec.image}"
    story.say(f"kept: enter it with `{enter}`, remove it with `docker rm -f -v {made.name}`")
