"""Which candidates go and which stay, and what goes and stays with them."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from pipeline.oci import Digest
from pipeline.pruning import Held, Pruning, Shelf, plan


def digest(number: int) -> Digest:
    return Digest(f"sha256:{number:064x}")


def candidate(number: int, image: str = "nlp", base: int | None = None) -> tuple[str, Held]:
    """A candidate, its tag first; its one layer has 100 bytes, and all candidates share another."""
    inputs = f"{number:012x}" + "0" * 52
    held = Held(
        digest=digest(number),
        blobs={digest(1000 + number): 100, digest(1000): 7},
        image=image,
        input_hash=inputs,
        base=digest(base) if base is not None else None,
    )
    return f"v2.6-{image}-{inputs[:12]}", held


def shelf(*candidates: tuple[str, Held], also: Collection[Held] = (), tags: Mapping[str, int] | None = None) -> Shelf:
    """Candidates, each written after the one before."""
    held = [one for _, one in candidates] + [*also]
    return Shelf(
        manifests={one.digest: one for one in held},
        tags={**{tag: one.digest for tag, one in candidates}, **{tag: digest(one) for tag, one in (tags or {}).items()}},
        written={tag: float(place) for place, (tag, _) in enumerate(candidates)},
    )


def gone(found: Pruning) -> list[int]:
    return [int(one.hex, 16) for one in found.manifests]


def test_what_the_plan_names_and_the_newest_of_each_image_stay() -> None:
    old, named, between, newest = (candidate(number) for number in (1, 2, 3, 4))
    other = candidate(5, "lab")
    found = plan(shelf(old, named, between, newest, other), wanted=[named[0]], released=[])
    assert gone(found) == [1, 3]
    assert [(one.image, one.tag) for one in found.old] == [("nlp", old[0]), ("nlp", between[0])]
    assert found.size == 200, "the layer that all share stays"
    assert found.tags == {named[0], newest[0], other[0]}
    assert digest(1000) in found.needed


def test_what_is_released_and_what_others_stand_on_stays() -> None:
    ground, below = candidate(1, "os"), candidate(2, "os", base=None)
    released, old, newest = candidate(3, base=1), candidate(4, base=2), candidate(5)
    found = plan(shelf(ground, released, old, below, newest, candidate(6, "os")), wanted=[], released=[digest(3)])
    assert gone(found) == [2, 4]


def test_what_refers_to_what_stays_stays_and_what_refers_to_what_goes_goes() -> None:
    evidence = [Held(digest=digest(10 + one), subject=digest(one)) for one in (1, 2)]
    lists = [Held(digest=digest(20 + one), children=(digest(10 + one),)) for one in (1, 2)]
    before, stray = Held(digest=digest(30), children=(digest(12),)), Held(digest=digest(31), subject=digest(99))
    tags = {f"sha256-{digest(one).hex}": 20 + one for one in (1, 2)}
    found = plan(shelf(candidate(1), candidate(2), also=[*evidence, *lists, before, stray], tags=tags), wanted=[], released=[])
    assert gone(found) == [1, 11, 21, 30]
    assert found.needed >= {digest(2), digest(12), digest(22), digest(31)}


def test_a_tag_that_is_no_candidates_stays_and_what_it_named_before_goes() -> None:
    caches = [Held(digest=digest(one), blobs={digest(1000 + one): 50}) for one in (1, 2)]
    found = plan(shelf(also=caches, tags={"buildcache-v2.6-zstd7": 2}), wanted=[], released=[])
    assert (gone(found), found.size) == ([1], 50)


def test_nothing_goes_whose_time_is_not_known_or_that_a_tag_that_stays_names_too() -> None:
    held = shelf(candidate(1), candidate(2))
    assert gone(plan(replace(held, written={}), wanted=[], released=[])) == []
    named = replace(held, tags={**held.tags, "mine": digest(1)})
    found = plan(named, wanted=[], released=[])
    assert (gone(found), found.old) == ([], ())
    assert plan(shelf(), wanted=["v2.6-nlp-1"], released=[]).tags == {"v2.6-nlp-1"}
