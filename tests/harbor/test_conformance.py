"""The Harbor for tests answers as a real one did; `pytest tests/harbor --harbor URL` asks a real one the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harbor.replay import Run, Site

DATA = Path(__file__).parents[1] / "data" / "harbor" / "answers.json"
SCENES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["scenes"]
NOT_FOLLOWED = {
    "copying artifacts (POST …/artifacts?from=)": "no promoter may use it: it moves tags and leaves evidence behind",
    "scans, labels, audit log, webhooks, replication, preheating": "neither promoter nor doctor asks for them",
    "users and members of projects": "robots and the administrator are enough to try rights",
    "right CSRF tokens": "a client without cookies never needs one; any `sid` cookie is refused",
    "legacy `.sig`, `.att`, `.sbom` and a fallback index in lists": "we write none; `.sig` is seen as a signature, no more",
    "retention, and schedules of garbage collection": "they are kept and shown, they delete nothing; one collection by hand does",
    "proxy caches, vulnerability policies, notation's content trust": "projects for releases have none of them",
    "the registry behind it": "the project's own version, which is newer than Harbor's; texts of its errors may differ",
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene["scene"].replace(" ", "-"))
def test_answers_are_those_of_a_real_harbor(site: Site, scene: dict[str, Any]) -> None:
    assert list(Run(site).play(scene["steps"])) == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"status": 404}, "status 200, not 404"),
        ({"status": 200, "headers": {"Content-Type": "text/html"}}, "header Content-Type"),
        ({"status": 200, "text": "Ping"}, "body 'Pong'"),
        ({"status": 200, "body": {}}, "not JSON"),
    ],
)
def test_an_answer_that_differs_is_found(site: Site, answer: dict[str, Any], fault: str) -> None:
    (found,) = Run(site).play([{"as": "nobody", "send": "GET /api/v2.0/ping", "answer": answer}])
    assert fault in found
