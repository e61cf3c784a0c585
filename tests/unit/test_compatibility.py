"""What an image's claims say of drivers and GPUs: the same to the lane that asks before it starts, and to people."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from rich.console import Console

from pipeline import catalog_text, compatibility, report
from pipeline.catalog import Catalog, Image
from pipeline.compatibility import Claimed, Family
from pipeline.errors import CatalogError, InputError
from pipeline.explain import compatible, families
from pipeline.gpus import Gpu
from pipeline.sources import Folder

OLD = {"architectures": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", "driver": "525.60.13"}
NEW = {"architectures": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"}


def gpu(major: int, minor: int) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name="a GPU", capability=(major, minor), memory=2**34, used=0)


@pytest.mark.parametrize(
    ("claims", "capability", "refusal"),
    [
        (OLD, (5, 0), ""),
        (OLD, (6, 1), ""),
        (OLD, (8, 9), ""),
        (OLD, (9, 0), ""),
        (OLD, (12, 0), "this GPU is sm_120, the image supports sm_50 to sm_90"),
        (OLD, (10, 0), "this GPU is sm_100, the image supports sm_50 to sm_90"),
        (OLD, (3, 7), "this GPU is sm_37, the image supports sm_50 to sm_90"),
        (NEW, (7, 0), f"this GPU is sm_70, the image supports {NEW['architectures']}"),
        (NEW, (12, 1), ""),
        (NEW, (13, 0), ""),
        ({"architectures": "sm_80"}, (9, 0), "this GPU is sm_90, the image supports sm_80"),
        ({"architectures": "sm_86"}, (8, 0), "this GPU is sm_80, the image supports sm_86"),
        ({"architectures": "sm_120 sm_80"}, (10, 0), "this GPU is sm_100, the image supports sm_80 sm_120"),
        ({"architectures": "sm_90a"}, (9, 0), ""),
        ({"architectures": "sm_100a"}, (10, 3), "this GPU is sm_103, the image supports sm_100a"),
        ({"architectures": "sm_100f"}, (10, 3), ""),
        ({"architectures": "compute_90a"}, (10, 0), "this GPU is sm_100, the image supports compute_90a"),
        ({"architectures": "compute_100f"}, (12, 0), "this GPU is sm_120, the image supports compute_100f"),
        ({"architectures": "compute_70"}, (6, 1), "this GPU is sm_61, the image supports compute_70"),
        ({}, (1, 0), ""),
    ],
)
def test_machine_code_runs_on_its_major_version_and_ptx_on_all_that_is_newer(
    claims: Mapping[str, str], capability: tuple[int, int], refusal: str
) -> None:
    assert Claimed.of(claims).refusal(gpu(*capability)) == refusal


@pytest.mark.parametrize(
    ("driver", "refusal"),
    [
        ("525.60.13", ""),
        ("525.60.130", ""),
        ("550.54.15", ""),
        ("1000.1", ""),
        ("525.60.3", "this machine's driver is 525.60.3, the image needs 525.60.13 or newer"),
        ("525.60", "this machine's driver is 525.60, the image needs 525.60.13 or newer"),
        ("470.256.02", "this machine's driver is 470.256.02, the image needs 525.60.13 or newer"),
        ("", "this machine's driver says ``, which is no version; the image needs 525.60.13 or newer"),
        ("550.x", "this machine's driver says `550.x`, which is no version; the image needs 525.60.13 or newer"),
    ],
)
def test_drivers_are_compared_as_numbers(driver: str, refusal: str) -> None:
    assert Claimed.of(OLD).driver_refusal(driver) == refusal
    assert Claimed.of({}).driver_refusal(driver) == ""


def test_zeros_at_the_end_of_a_version_count_nothing() -> None:
    assert Claimed.of({"driver": "580.0.0"}).driver_refusal("580") == ""


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"architectures": "sm_80 sm90"}, "the claim `architectures` holds `sm90`: it takes words like `sm_90`"),
        ({"architectures": "sm_80 8.6"}, "the claim `architectures` holds `8.6`"),
        ({"driver": ">=525"}, 'the claim `driver` must be the oldest driver that does, like `"525.60.13"`, not `>=525`'),
    ],
)
def test_claims_that_cannot_be_read_are_refused(claims: Mapping[str, str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        Claimed.of(claims)
    assert caught.value.message.startswith(text)


def test_the_catalog_refuses_them_with_file_and_line() -> None:
    image = b"description: x\nclaims:\n  driver: '>=525'\n  architectures: sm_80 sm90\n"
    with pytest.raises(CatalogError) as caught:
        catalog_text.parse(b"", {"app": Folder(text=image, paths=("Dockerfile", "image.yaml"))})
    assert {problem for problem in caught.value.problems if "claims" in problem} == {
        'images/app/image.yaml:3: `claims.driver` must be the oldest driver that does, like `"525.60.13"`, not `>=525`',
        "images/app/image.yaml:4: `claims.architectures` holds `sm90`: it takes words like `sm_90`, and `compute_90` for PTX",
    }


def test_rows_tell_the_code_that_runs() -> None:
    known = [Family(capability=one, gpus=("x",)) for one in ((13, 0), (8, 9), (12, 0), (7, 0))]
    rows = compatibility.rows(Claimed.of(NEW), known)
    assert [(row.family.capability, row.runs, row.by) for row in rows] == [
        ((7, 0), "does-not-run", ""),
        ((8, 9), "runs", "sm_86"),
        ((12, 0), "runs", "sm_120"),
        ((13, 0), "compiles", "compute_120"),
    ]
    assert {row.runs for row in compatibility.rows(Claimed.of({}), known)} == {"unknown"}


def test_every_family_of_the_data_file_is_known_once_with_names() -> None:
    capabilities = [family.capability for family in families()]
    assert capabilities == sorted(set(capabilities))
    assert {(7, 5), (8, 0), (8, 9), (9, 0), (12, 0)} <= set(capabilities)
    assert all(isinstance(name, str) for family in families() for name in family.gpus)
    assert all(family.gpus for family in families())


def catalog(parent: Mapping[str, str], child: Mapping[str, str]) -> Catalog:
    images = {
        "ground": Image(name="ground", description="x", claims=parent),
        "app": Image(name="app", description="x", parent="ground", variant="app", claims=child),
    }
    return Catalog(
        line="1.0",
        repository="images",
        candidates="localhost:5601/candidates",
        releases="localhost:5601/releases",
        platform="linux/amd64",
        epoch=datetime(2025, 1, 29, tzinfo=UTC),
        compression_level=3,
        images=images,
    )


def shown(found: object) -> str:
    out = io.StringIO()
    Console(file=out, width=150, color_system=None).print(found)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_people_read_what_an_image_and_its_parents_claim() -> None:
    found = compatible(catalog(OLD, {"driver": "550.54.15"}), "app")
    told = shown(report.compatibility_table(found))
    assert told.startswith("app: runs on driver ≥ 550.54.15, sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90\n")
    lines = {line.split()[0]: line for line in told.splitlines() if line}
    assert lines["8.9"].split()[1:3] == ["runs", "sm_86"]
    assert lines["8.9"].endswith("GeForce RTX 4090")
    assert lines["12.0"].split()[1:3] == ["does-not-run", "-"]
    assert "compiles" not in told
    data = json.loads(json.dumps(report.compatibility_json(found)))
    assert data["driver"] == "550.54.15"
    assert {row["runs"] for row in data["rows"]} == {"runs", "does-not-run"}
    assert data["rows"][0]["family"]["capability"] == [5, 0]


def test_what_is_compiled_at_the_first_start_is_said() -> None:
    told = shown(report.compatibility_table(compatible(catalog({"architectures": "sm_80 compute_90"}, {}), "app")))
    assert "app: claims no driver, sm_80 compute_90\n" in told
    assert told.splitlines()[-1] == "compiles: from PTX, once for each GPU, at the first start"


def test_no_claim_is_said_and_refuses_nothing() -> None:
    told = shown(report.compatibility_table(compatible(catalog({}, {}), "app")))
    assert told == "app: claims no driver, claims no architectures: nothing is known of the GPUs that it runs on"
