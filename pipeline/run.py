"""Starting an image as its users do: one `docker run` line, made as a value, shown, and then become.

The current folder is at `/workspace` and written to as the caller; the images' home belongs to group 0, so any user id
may use it. Values of variables never appear in the line: docker takes them from the environment by name.

A variable that an image sets to nothing is one that it may be given: the caller's own value, and for `AUTHORIZED_KEYS` the
caller's public keys. An image whose port is another one outside is told by `PORT_<inside>`, so that it can print addresses.
"""

import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from pipeline.catalog import Catalog
from pipeline.engine import Described, Engine, Facts, describe, ensure
from pipeline.errors import InputError
from pipeline.nvidia import DRIVER
from pipeline.oci import Pinned, Tagged, parse_reference
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.story import Story

WORKSPACE = "/workspace"
SHM = "2g"
"""Size of /dev/shm: workers of data loaders share their batches there, and docker's 64 MB end in a bus error."""
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-cdi-hook")
"""Programs of which docker needs one for `--gpus`."""
EVERY_GPU = {"toolkit": ("--gpus", "all"), "cdi": ("--device", "nvidia.com/gpu=all")}
"""By the way that the engine hands them out: with CDI alone, many engines know no `--gpus` (moby#50228)."""
KEYS = "AUTHORIZED_KEYS"
"""The variable in which an image takes public keys for ssh, one a line."""
PASSED_ON = (
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_HUB_OFFLINE",
    "HF_DATASETS_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Variables that an image gets when the caller has them."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who starts an image, and from where."""

    folder: Path
    uid: int
    terminal: bool
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """The words of `docker run`, and the environment in which docker finds what they name."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An image to start."""

    pinned: Pinned
    tag: str
    """Its tag in the repository; empty when it was named by digest."""


def choose(text: str, catalog: Catalog, registry: Registry) -> Chosen:
    """The image that a reference or a tag names; a bare tag is looked for among the releases, then the candidates.

    Raises `InputError` when there is none.
    """
    if "/" in text or "@" in text:
        reference = parse_reference(text)
        if isinstance(reference, Pinned):
            return Chosen(pinned=reference, tag="")
        places = [reference]
    else:
        places = [repository.tag(text) for repository in (catalog.release_repository, catalog.candidate_repository)]
    for tagged in places:
        if digest := registry.resolve(tagged):
            return Chosen(pinned=tagged.repository.at(digest), tag=tagged.name)
    listed = " nor ".join(f"`{tagged}`" for tagged in places)
    near = get_close_matches(text, catalog.images, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "`nox -s plan` lists the images"
    raise InputError(f"there is no image `{text}`: neither in the catalog nor {listed}", hint=hint)


def prepare(
    chosen: Chosen,
    command: Sequence[str],
    *,
    caller: Caller,
    engine: Engine,
    registry: Registry,
    settings: Settings,
    story: Story,
    docker: str | Path = "docker",
) -> Line:
    """Bring the image into the engine, and say in one line how it is started."""
    image = ensure(
        chosen.pinned,
        registry.manifest(chosen.pinned),
        engine=engine,
        registry=registry,
        story=story,
        scratch=settings.cache / "loading",
        tag=chosen.tag,
    )
    name = str(Tagged(chosen.pinned.repository, chosen.tag)) if chosen.tag else image
    described = describe(engine, image)
    ports = {port: free_port(port, story) for port in described.ports}
    gpus = _gpus(engine.facts, story)
    caller = with_keys(caller, described, story)
    if not engine.publishes_here:
        story.warn(f"the engine is elsewhere (`{engine.facts.machine.get('host', '')}`): folders and ports are that machine's")
    if not _user(described, caller, engine.facts):
        story.warn(f"root may not use this image: it starts as its own user, who may be unable to write to `{caller.folder}`")
    words = argv(name, command, described, caller=caller, facts=engine.facts, ports=ports, gpus=gpus, docker=docker)
    return Line(argv=words, environment=caller.environment)


def with_keys(caller: Caller, described: Described, story: Story) -> Caller:
    """The caller with the public keys in `~/.ssh`, if the image takes keys and none are given; raises `InputError`."""
    if described.variables.get(KEYS) != "" or caller.environment.get(KEYS):
        return caller
    folder = Path(caller.environment.get("HOME", "")) / ".ssh"
    files = [path for path in sorted(folder.glob("*.pub")) if not path.name.endswith("-cert.pub")] if folder.is_absolute() else []
    if not files:
        story.say("there is no public key in `~/.ssh`, so nobody can log in over ssh: `ssh-keygen -t ed25519` makes one")
        return caller
    keys = "\n".join(_public_key(path) for path in files)
    return replace(caller, environment={**caller.environment, KEYS: keys})


def _public_key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` cannot be read: {error}", hint=f"give the public keys in {KEYS}") from error


def argv(
    image: str,
    command: Sequence[str],
    described: Described,
    *,
    caller: Caller,
    facts: Facts,
    ports: Mapping[int, int],
    gpus: bool,
    docker: str | Path = "docker",
) -> tuple[str, ...]:
    """The words of `docker run`; `ports` are those inside → those of this machine."""
    return (
        *(str(docker), "run", "--rm", "-it" if caller.terminal else "-i", "--init", "--pull", "never", "--shm-size", SHM),
        *(EVERY_GPU[facts.way] if gpus else ()),
        *(("--user", user) if (user := _user(described, caller, facts)) else ()),
        *(("--security-opt", "label=disable") if facts.selinux else ()),
        *(("--userns", "host") if facts.remapped else ()),
        *("-v", f"{caller.folder}:{WORKSPACE}", "-w", WORKSPACE),
        *_cache(described, caller),
        *(word for inside, outside in ports.items() for word in ("-p", f"127.0.0.1:{outside}:{inside}")),
        *(word for text in _variables(described, caller, ports) for word in ("-e", text)),
        *(image, *command),
    )


def free_port(wanted: int, story: Story) -> int:
    """`wanted` on loopback, or another port when it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found = int(probe.getsockname()[1])
        if found != wanted:
            story.say(f"port {wanted} is taken: the image's port {wanted} is `localhost:{found}`")
        return found
    raise AssertionError("the system gives no port")


def _gpus(facts: Facts, story: Story) -> bool:
    if not DRIVER.exists():
        return facts.gpus
    if facts.gpus or any(shutil.which(hook) for hook in HOOKS):
        return True
    story.warn("this machine has an NVIDIA driver, and docker cannot hand out its GPUs: install the NVIDIA container toolkit")
    return False


def _user(described: Described, caller: Caller, facts: Facts) -> str:
    """The caller, whom a rootless engine knows as root; empty where that is root and people log in: there root is refused."""
    uid = 0 if facts.rootless else caller.uid
    return "" if uid == 0 and KEYS in described.variables else f"{uid}:0"


def _cache(described: Described, caller: Caller) -> tuple[str, ...]:
    """The caller's cache of models and data sets, for an image that keeps one."""
    inside, home = described.variables.get("HF_HOME"), caller.environment.get("HOME", "")
    outside = Path(caller.environment.get("HF_HOME") or f"{home}/.cache/huggingface")
    return ("-v", f"{outside}:{inside}") if inside and outside.is_absolute() and outside.is_dir() else ()


def _variables(described: Described, caller: Caller, ports: Mapping[int, int]) -> list[str]:
    """What is set: what a user id without an entry in `/etc/passwd` needs, ports that are others, names of the caller's own."""
    missing = {"HOME": "/tmp", "USER": "user", "LOGNAME": "user"}
    needed = [f"{name}={value}" for name, value in missing.items() if name not in described.variables]
    moved = [f"PORT_{inside}={outside}" for inside, outside in ports.items() if inside != outside]
    wanted = [name for name, value in described.variables.items() if not value]
    return needed + moved + [name for name in dict.fromkeys((*PASSED_ON, *wanted)) if caller.environment.get(name)]
