"""The candidates that an engine keeps, by the labels that builds write."""

from collections.abc import Iterator
from functools import partial

from pipeline import names
from pipeline.engine.connection import Engine, calling
from pipeline.oci import Repository, Tagged
from pipeline.pruning import is_candidate


def candidates(engine: Engine, repository: Repository) -> tuple[str, ...]:
    """The tags of this repository's candidates in the engine."""
    with calling("listing images"):
        return tuple(sorted(_candidates(engine, repository)))


def forget(engine: Engine, tagged: Tagged) -> bool:
    """Remove a name, with the image and the layers that nothing else uses; False where a container still uses it."""
    from docker.errors import APIError, ImageNotFound

    remove = partial(engine.client.remove_image, str(tagged))
    with calling(f"removing `{tagged}`"):
        try:
            remove()
        except ImageNotFound:
            return True
        except APIError as error:
            if error.status_code == 409:
                return False
            raise
    return True


def _candidates(engine: Engine, repository: Repository) -> Iterator[str]:
    for found in engine.client.images(name=str(repository), filters={"label": names.LABEL_IMAGE}):
        labels = found.get("Labels") or {}
        for name in found.get("RepoTags") or ():
            place, _, tag = name.rpartition(":")
            if place == str(repository) and is_candidate(
                tag, labels.get(names.LABEL_IMAGE, ""), labels.get(names.LABEL_INPUT_HASH, "")
            ):
                yield tag
