"""`released`: what the floating tags name, for those who look at releases day by day."""

from collections.abc import Mapping, Sequence

from pipeline import context, matrix, names, plan, releases
from pipeline.call import Call, content, hand_on, policy_of, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, NothingSelected
from pipeline.oci import Digest

Release = Mapping[str, str | None]
OUTPUTS = ("image", "digest", "commit")


def released_verb(call: Call) -> int:
    """Print each as JSON on one line; in Actions, set the outputs `images`, `image`, `digest` and `commit`.

    Raises `InputError` at the end, when nobody says from which commit one was built: the others are told all the same.
    """
    catalog = context.load(call.settings)
    asked = {name: _released(call, catalog, name) for name in _images(call, catalog)}
    there = [one for one in asked.values() if one]
    if not there:
        _none(call, catalog)
    _warn_of_lost(call, catalog, [name for name, one in asked.items() if one is None])
    found = _of_the_day(call, there) if call.arguments.of_the_day else there
    print(matrix.compact(found))
    handed = {key: str(found[0][key] or "") if found else "" for key in OUTPUTS}
    hand_on(call, {"images": " ".join(str(one["candidate"]) for one in found), **handed})
    if unknown := [f"{catalog.release_repository}@{one['digest']}" for one in there if one["commit"] is None]:
        raise InputError(
            f"nobody whose key counts says from which commit {', '.join(f'`{one}`' for one in unknown)} was built",
            hint=f"{names.ENV_POLICY} names the policy whose keys count; `nox -s verify -- {unknown[0]}` tells what is there",
        )
    return 0


def _warn_of_lost(call: Call, catalog: Catalog, names: Sequence[str]) -> None:
    """Say which images have a release, and no floating tag by which anybody would look at it."""
    tags = call.registry.tags(catalog.release_repository) if names else ()
    for name in names:
        image = catalog.images[name]
        if last := releases.highest(tags, catalog.line, image.variant):
            call.console.warn(f"`{last}` is there, and `{catalog.floating_tag(image)}` is not: nobody looks at it any more")


def _of_the_day(call: Call, there: Sequence[Release]) -> Sequence[Release]:
    known = [one for one in there if one["commit"] is not None]
    return known[call.now().toordinal() % len(known) :][:1] if known else []


def _none(call: Call, catalog: Catalog) -> None:
    """Say that nothing was released yet; raises `NothingSelected` where that is not proved.

    Proof is that the repository answers, and holds no tag, and that nobody has a record of a release. A registry alone is
    none: the one of a typing error is as empty.
    """
    place = catalog.release_repository
    lost = NothingSelected(f"`{place}` holds no release of these images", hint="`nox -s promote -- IMAGE`")
    if call.arguments.record is None:
        raise lost
    counts, tags = _counts(call), [tag for tag in call.registry.tags(place) if not Digest.listed_by(tag)]
    if any(counts) or tags:
        summarise(call, _missed(str(place), catalog.line, recorded=any(counts), tags=len(tags)))
        raise lost
    text = f"nothing was released to `{place}` yet, and nobody has a record of a release"
    call.console.warn(text)
    summarise(call, f"N{text[1:]}: there is nothing to do.\n")


def _counts(call: Call) -> list[int]:
    """Raises `InputError` where there is not one number a line."""
    lines = content(call.arguments.record).decode(errors="replace").split()
    if not lines or not all(line.isdecimal() and line.isascii() for line in lines):
        raise InputError(
            f"`{call.arguments.record}` holds no numbers", hint="write how many releases are on record, a number a line"
        )
    return [int(line) for line in lines]


def _missed(place: str, line: str, *, recorded: bool, tags: int) -> str:
    told = "releases are on record, from this CI or by an earlier night" if recorded else f"`{place}` has {tags} tags"
    return (
        f"### `{place}` holds no release of the line {line}\n\n{told[0].upper()}{told[1:]}, so something is wrong:\n\n"
        "- `PIPELINE_RELEASES` names another place than promotions write to, or\n"
        "- tags or the whole repository were deleted: `promote` again writes them, or bring the registry's backup back, or\n"
        "- the catalog's `line` is new: promote its first release; until then, older lines are not looked at, or\n"
        "- only a promotion was approved here that wrote nothing: promote again.\n"
    )


def _images(call: Call, catalog: Catalog) -> list[str]:
    named = [plan.require(catalog, name).name for name in call.images]
    return named or [name for name, image in catalog.images.items() if image.release]


def _released(call: Call, catalog: Catalog, name: str) -> Release | None:
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


def _commit(call: Call, catalog: Catalog, digest: Digest) -> str | None:
    """The commit that an accepted key says to have built it from."""
    from pipeline.gather import gather
    from pipeline.statements import Built

    pinned = catalog.release_repository.at(digest)
    keys = policy_of(call, catalog, loopback=catalog.release_repository.loopback).keys
    built = gather(pinned, keys, call.registry, now=call.now()).one(Built)
    return built.commit if built else None
