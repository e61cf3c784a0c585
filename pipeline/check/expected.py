"""What the catalog at hand expects of an image, for those who sign and decide."""

from pathlib import Path

from pipeline.catalog import Catalog
from pipeline.check import suite as suites
from pipeline.check.bench import LANES
from pipeline.inputs import InputHash
from pipeline.policy import Expected, Suite


def expected(catalog: Catalog, image: str, input_hash: InputHash, images: Path) -> Expected:
    """Its inputs, tag, checks and claims; `images` is the folder that holds the check files."""
    this = catalog.images[image]
    lanes = {lane: suites.read(catalog, image, lane, images) for lane in LANES}
    return Expected(
        input_hash=input_hash.value,
        inputs=dict(input_hash.parts),
        tag=catalog.candidate_tag(this, input_hash.value),
        lanes={
            lane: Suite(hash=suite.hash, checks=tuple((check.image, check.name) for check in suite.checks))
            for lane, suite in lanes.items()
            if suite.checks
        },
        claims=dict(lanes["cpu"].claims),
        size_limit=this.size_limit,
        released=this.release,
    )
