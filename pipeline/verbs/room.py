"""`setup --prune`: room on this machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline import context
from pipeline.call import Call, ready_for
from pipeline.errors import InputError, PipelineError

if TYPE_CHECKING:
    from pipeline.engine import Engine
    from pipeline.prune import Look


def prune(call: Call) -> int:
    """Say which candidates nobody needs; with `--apply`, remove them."""
    from pipeline.prune import Room, apply, look
    from pipeline.toolchain import Host

    if not call.arguments.prune:
        raise InputError("`--apply` says not what", hint="`--prune --apply`")
    catalog = context.load(call.settings)
    if catalog.candidate_repository.loopback:
        ready_for(call, catalog, "registry")
    engine = _engine(call)
    room = Room(
        catalog=catalog,
        hashes=context.hashes(call.settings, catalog, ()),
        registry=call.registry,
        cache=call.settings.cache,
        engine=engine,
        host=Host.here(call.environment),
        run=call.run,
        story=call.console,
    )
    try:
        for line in _lines(look(room)):
            call.console.say(line)
        if not call.arguments.apply:
            call.console.say("nothing is removed yet: `nox -s setup -- --prune --apply` does it")
            return 0
        freed = apply(room)
    finally:
        if engine:
            engine.close()
    for tag in freed.in_use:
        call.console.warn(f"`{room.repository}:{tag}` stays in the engine: a container uses it")
    call.console.say(f"the registry takes {freed.registry / 1e9:.2f} GB less")
    return 0


def _lines(found: "Look") -> Iterator[str]:
    for old in found.pruning.old:
        yield f"candidate of `{old.image}` that goes: {old.tag} ({old.digest.hex[:12]})"
    for tag in found.loaded:
        yield f"image in the engine that goes: {tag}"
    rest = len(found.pruning.manifests) - len({old.digest for old in found.pruning.old})
    yield (
        f"candidates that go: {len(found.pruning.old)}, manifests that refer to them or that no tag names any more: {rest}, "
        f"together {found.pruning.size / 1e9:.2f} GB, unless another repository of the registry needs them"
    )


def _engine(call: Call) -> "Engine | None":
    """The engine of this machine; its images are left where it does not answer, and those of another machine always."""
    from pipeline.engine import connect

    try:
        engine = connect(call.environment, run=call.run_id)
    except PipelineError as error:
        call.console.warn(f"the engine's images are left: {error.message}")
        return None
    if engine.local:
        return engine
    call.console.warn("the engine's images are left: it is on another machine")
    engine.close()
    return None
