"""`released`: what the floating tags name, for those who look at releases day by day."""

from typing import Any

from pipeline import context, matrix, plan
from pipeline.call import Call, hand_on, policy_of
from pipeline.catalog import Catalog
from pipeline.errors import InputError, NothingSelected
from pipeline.oci import Digest


def released_verb(call: Call) -> int:
    """Print each as JSON on one line; in Actions, set the outputs `images`, `image`, `digest` and `commit`."""
    catalog = context.load(call.settings)
    found = [one for name in _images(call, catalog) if (one := _released(call, catalog, name))]
    if call.arguments.of_the_day:
        found = found[call.now().toordinal() % len(found) :][:1] if found else []
    if not found:
        raise NothingSelected(
            f"`{catalog.release_repository}` holds no release of these images", hint="`nox -s promote -- IMAGE`"
        )
    print(matrix.compact(found))
    hand_on(
        call,
        {"images": " ".join(one["candidate"] for one in found), **{key: found[0][key] for key in ("image", "digest", "commit")}},
    )
    return 0


def _images(call: Call, catalog: Catalog) -> list[str]:
    named = [plan.require(catalog, name).name for name in call.images]
    return named or [name for name, image in catalog.images.items() if image.release]


def _released(call: Call, catalog: Catalog, name: str) -> dict[str, Any] | None:
    image = catalog.images[name]
    if not image.release:
        raise InputError(f"`{name}` is never released", hint="name an image without `release: false`")
    tag = catalog.floating_tag(image)
    digest = call.registry.resolve(catalog.release_repository.tag(tag))
    if digest is None:
        return None
    return {
        "image": name,
        "tag": tag,
        "digest": str(digest),
        "candidate": str(catalog.candidate_repository.at(digest)),
        "commit": _commit(call, catalog, digest),
    }


def _commit(call: Call, catalog: Catalog, digest: Digest) -> str:
    """The commit that an accepted key says to have built it from; raises `InputError` when none does."""
    from pipeline.gather import gather
    from pipeline.statements import Built

    pinned = catalog.release_repository.at(digest)
    keys = policy_of(call, catalog, loopback=catalog.release_repository.loopback).keys
    built = gather(pinned, keys, call.registry, now=call.now()).one(Built)
    if built is None or built.commit is None:
        raise InputError(
            f"nobody whose key counts says from which commit `{pinned}` was built", hint="`nox -s verify` tells what is there"
        )
    return built.commit
