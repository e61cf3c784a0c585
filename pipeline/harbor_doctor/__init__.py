"""What is wrong with a Harbor for those who promote to it, the remedy for each fault, and what would put it right.

Only `apply` changes anything: it makes projects and rules that lack. What others made is never changed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pipeline.diagnosis import Finding, State
from pipeline.errors import PipelineError, RegistryRefused
from pipeline.harbor import Harbor, Project
from pipeline.harbor_doctor.judging import UI, frozen, judged, retained
from pipeline.harbor_doctor.places import RELEASE_TAGS, Change, Place, inside
from pipeline.oci import Repository

OLDEST = (2, 15)
"""The first Harbor that lists cosign's bundles as signatures."""
SPACE_WANTED = 20 * 10**9
"""Bytes of quota left, below which a family of torch images may not fit."""
LOOK_AGAIN = "mend what is said, then look again"


def examine(wanted: Sequence[Place], open: Callable[[str], Harbor | None]) -> tuple[Finding, ...]:
    """Look at all that a promotion may stumble on; a part that cannot be looked at is a fault of its own."""
    found: list[Finding] = []
    for host in dict.fromkeys(each.host for each in wanted):
        here = [each for each in wanted if each.host == host]
        try:
            harbor = open(host)
        except PipelineError as error:
            found.append(Finding("harbor", State.FAULT, error.message, error.hint or LOOK_AGAIN))
            continue
        if harbor is None:
            found.append(_plain(host, here))
            continue
        found += _harbor(harbor)
        for place in here:
            found += _looked(place.project, partial(_place, harbor, place))
    return tuple(found)


def _plain(host: str, here: Sequence[Place]) -> Finding:
    detail = f"`{host}` is no Harbor: nothing there keeps a tag from being moved"
    if any(each.chosen for each in here):
        return Finding("harbor", State.FAULT, detail, "name a Harbor: `--harbor HOST/PROJECT`")
    return Finding("harbor", State.OK, detail)


def changes(harbor: Harbor, place: Place) -> tuple[Change, ...]:
    """What lacks: the project, or a rule for releases that are not frozen."""
    there = harbor.exists(place.project)
    rules = harbor.immutable_rules(place.project) if there and place.releases else ()
    missing = () if there else (Change(project=place.project),)
    loose = dict.fromkeys(inside(each) for each in place.releases if not frozen(rules, each))
    return (*missing, *(Change(project=place.project, repositories=path) for path in loose))


def apply(harbor: Harbor, change: Change) -> None:
    """Make a project or a rule; what is there is left as it is."""
    if change.repositories is None:
        harbor.create_project(change.project)
    else:
        harbor.add_immutable_rule(change.project, repositories=change.repositories, tags=RELEASE_TAGS)


def _harbor(harbor: Harbor) -> Iterator[Finding]:
    secure = "http on loopback" if Repository(harbor.host, "x").loopback else "its certificate is trusted"
    yield Finding("harbor", State.OK, f"`{harbor.host}` answers, {secure}, the login `{harbor.user}` is right")
    match = re.match(r"v?(\d+)\.(\d+)", harbor.version)
    if match and (int(match[1]), int(match[2])) >= OLDEST:
        yield Finding("harbor version", State.OK, harbor.version)
    else:
        least = ".".join(map(str, OLDEST))
        yield Finding(
            "harbor version", State.WARN, f"{harbor.version}, older ones than {least} were not tried", f"Harbor {least}"
        )
    yield from _looked("harbor read-only mode", lambda: _read_only(harbor))


def _read_only(harbor: Harbor) -> Iterator[Finding]:
    on = harbor.read_only()
    remedy = "an administrator ends it: Administration, Configuration, System Settings"
    yield Finding(
        "harbor read-only mode", State.FAULT if on else State.OK, "on: nothing can be written" if on else "off", remedy * on
    )


def _place(harbor: Harbor, place: Place) -> Iterator[Finding]:
    name = place.project
    yield from _looked(f"{name}: rights", lambda: _rights(harbor, place))
    if not harbor.exists(name):
        return
    project: list[Project] = []
    yield from _looked(f"{name}: project", lambda: _project(harbor, place, project))
    yield from _looked(f"{name}: rules", lambda: _rules(harbor, place))
    for each in project:
        yield from _looked(f"{name}: retention", partial(_retention, harbor, place, each))
    yield from _looked(f"{name}: garbage", lambda: _garbage(harbor, name))
    yield from _looked(f"{name}: quota", lambda: _quota(harbor, name))


def _looked(name: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What we may not see is a warning: which rights are needed is looked at by itself."""
    try:
        yield from look()
    except PipelineError as error:
        state = State.WARN if isinstance(error, RegistryRefused) else State.FAULT
        yield Finding(name, state, error.message, error.hint or LOOK_AGAIN)


def _rights(harbor: Harbor, place: Place) -> Iterator[Finding]:
    name = f"{place.project}: rights"
    if not harbor.exists(place.project):
        yield Finding(f"{place.project}: project", State.FAULT, "there is no such project", place.apply)
        return
    held = harbor.rights(place.repository)
    missing = [right for right in place.rights if right not in held]
    if not missing:
        yield Finding(name, State.OK, f"`{harbor.user}` may do all that a pipeline does: {', '.join(sorted(held))}")
        return
    remedy = f"an administrator gives `{harbor.user}` {', '.join(f'`{each}`' for each in missing)} in project `{place.project}`"
    yield Finding(name, State.FAULT, f"`{harbor.user}` lacks {', '.join(missing)}", remedy)


def _project(harbor: Harbor, place: Place, found: list[Project]) -> Iterator[Finding]:
    name, project = f"{place.project}: project", harbor.project(place.project)
    if project is None:
        yield Finding(name, State.FAULT, "there is no such project", place.apply)
        return
    found.append(project)
    where = UI.format(place.project, "Configuration")
    if project.public:
        yield Finding(name, State.WARN, "everybody may pull from it", f"take `Public` away {where}")
    else:
        yield Finding(name, State.OK, "private")
    if project.content_trust:
        detail = "on: an image without a signature cannot be pulled, so none can be tested before it is signed"
        yield Finding(f"{place.project}: content trust", State.FAULT, detail, f"take `Cosign` and `Notation` away {where}")
    else:
        yield Finding(f"{place.project}: content trust", State.OK, "off")
    if project.prevents_vulnerable:
        detail = "images that Harbor has not scanned, or has found something in, cannot be pulled"
        yield Finding(f"{place.project}: pulling", State.FAULT, detail, f"take `Prevent vulnerable images` away {where}")


def _rules(harbor: Harbor, place: Place) -> Iterator[Finding]:
    yield from judged(place, harbor.immutable_rules(place.project))


def _retention(harbor: Harbor, place: Place, project: Project) -> Iterator[Finding]:
    name, policy = f"{place.project}: retention", harbor.retention(project)
    if policy is None:
        yield Finding(name, State.OK, "there is none: nothing is deleted")
        return
    rules = harbor.immutable_rules(place.project)
    yield from retained(place, policy, rules)


def _garbage(harbor: Harbor, project: str) -> Iterator[Finding]:
    collected = harbor.collects_untagged()
    told = {
        None: "whether it is collected may not be known by this login; tagged images and their evidence stay in any case",
        True: "what has no tag is collected by itself; tagged images and their evidence stay",
        False: "nothing is collected by itself that has no tag",
    }
    yield Finding(f"{project}: garbage", State.OK, told[collected])


def _quota(harbor: Harbor, project: str) -> Iterator[Finding]:
    name, quota = f"{project}: quota", harbor.quota(project)
    if quota is None:
        yield Finding(name, State.WARN, "how much is left may not be known", f"give `{harbor.user}` the right `quota:read`")
    elif quota.left is None:
        yield Finding(name, State.OK, f"{quota.used / 1e9:.1f} GB used, no limit")
    else:
        state = State.OK if quota.left >= SPACE_WANTED else State.WARN if quota.left > 0 else State.FAULT
        remedy = f"an administrator raises it, or candidates are deleted, {UI.format(project, 'Summary')}"
        detail = f"{max(quota.left, 0) / 1e9:.1f} of {quota.limit / 1e9:.1f} GB left"
        yield Finding(name, state, detail, remedy if state is not State.OK else "")
