"""`plan --matrix`: all that a CI has to do, by what differs from a commit or by what the registry lacks."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import context, matrix, plan
from pipeline.call import Call, hand_on, policy_of, summarise, survey_of
from pipeline.catalog import Catalog
from pipeline.errors import CatalogError, InputError
from pipeline.matrix import Work
from pipeline.survey import in_parallel
from pipeline.verbs.trust import expected_of

if TYPE_CHECKING:
    from pipeline.policies import Loaded
    from pipeline.survey import Survey

GIT_SECONDS = 60.0
NEW = "is new"
CHECKS = "checks of the lane"
Facts = Mapping[str, str]


def show_work(call: Call, catalog: Catalog) -> int:
    """Print it as one line of JSON, or as a child pipeline; in Actions, set it as outputs."""
    found = _since(call, catalog, call.arguments.since) if call.arguments.since else _lacking(call, catalog)
    child = matrix.child_pipeline(found, change=bool(call.arguments.since)) if call.arguments.child_pipeline else None
    print(matrix.compact(child or found))
    hand_on(call, matrix.outputs(found))
    summarise(call, matrix.markdown(found))
    return 0


def _since(call: Call, catalog: Catalog, commit: str) -> Work:
    """What differs from the catalog of a commit: inputs mean a build, check files alone mean checks."""
    before = _facts_of(call, commit)
    now = _facts(call, catalog, call.images)
    why = {name: _differences(facts, before.get(name)) for name, facts in now.items()}
    changed = [name for name, differences in why.items() if differences]
    anew = [name for name in changed if any(not part.startswith(CHECKS) for part in why[name])]
    return matrix.work(catalog, build=anew, check=changed, why=why)


def _differences(now: Facts, before: Facts | None) -> Sequence[str]:
    if before is None:
        return (NEW,)
    return tuple(sorted(part for part in now.keys() | before.keys() if now.get(part) != before.get(part)))


def _facts(call: Call, catalog: Catalog, images: Sequence[str]) -> Mapping[str, Facts]:
    """Image → the parts of its input hash, and the hash of each lane's check files."""
    hashes = context.hashes(call.settings, catalog, images)
    wanted = [name for name in hashes if not images or name in images]
    expected = {name: expected_of(call, catalog, name, hashes) for name in wanted}
    return {
        name: {**one.inputs, **{f"{CHECKS} {lane}": suite.hash for lane, suite in one.lanes.items()}}
        for name, one in expected.items()
    }


def _facts_of(call: Call, commit: str) -> Mapping[str, Facts]:
    """The same of a commit; none where its catalog cannot be read, and then everything is new."""
    with tempfile.TemporaryDirectory() as folder:
        root = _checked_out(call, commit, Path(folder))
        there = replace(call, settings=replace(call.settings, root=root))
        try:
            return _facts(there, context.load(there.settings), ())
        except (CatalogError, InputError) as error:
            call.console.warn(f"all images count as new: the catalog of `{commit}` cannot be read: {error.message}")
            return {}


def _checked_out(call: Call, commit: str, folder: Path) -> Path:
    """The folder of `commit` that is this root; raises `InputError` when git does not know the commit."""
    root = call.settings.root
    git = ("git", "-C", root)
    known = call.run(*git, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", timeout=GIT_SECONDS, check=False)
    if known.code:
        raise InputError(
            f"git knows no commit `{commit}` here", hint="check out all commits: `fetch-depth: 0`, or `GIT_DEPTH: 0`"
        )
    prefix = call.run(*git, "rev-parse", "--show-prefix", timeout=GIT_SECONDS).stdout.strip()
    top = call.run(*git, "rev-parse", "--show-toplevel", timeout=GIT_SECONDS).stdout.strip()
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    call.run("git", "-C", top, "read-tree", known.stdout.strip(), timeout=GIT_SECONDS, env=index)
    tree = f"--prefix={folder / 'tree'}{os.sep}"
    call.run("git", "-C", top, "checkout-index", "--all", "--quiet", tree, timeout=GIT_SECONDS, env=index)
    return folder / "tree" / prefix


def _lacking(call: Call, catalog: Catalog) -> Work:
    """What has no candidate, and what has one that is not proved by this checkout's checks."""
    from pipeline.vouching import UNVOUCHED

    found = survey_of(call, catalog, rebuild=call.arguments.rebuild)
    shared = not catalog.candidate_repository.loopback
    why = {step.image: [step.reason] for step in found.steps if step.action == "build"}
    reused = [step for step in found.steps if step.action == "reuse" and (shared or matrix.lanes(catalog, step.image))]
    if reused:
        loaded = policy_of(call, catalog)
        lacks = in_parallel(lambda step: _unproved(call, found, step, loaded, shared=shared), reused)
        why |= {step.image: list(lack) for step, lack in zip(reused, lacks, strict=True) if lack}
    build = [step.image for step in found.steps if step.action == "build" or UNVOUCHED in why.get(step.image, ())]
    return matrix.work(catalog, build=build, check=list(why), why=why)


def _unproved(call: Call, found: "Survey", step: plan.Step, loaded: "Loaded", *, shared: bool) -> Sequence[str]:
    """That no accepted key says to have built this candidate, where others write too; and the lanes that none says it passed."""
    from pipeline.gather import gather
    from pipeline.statements import Built, Outcome, Tested
    from pipeline.vouching import UNVOUCHED

    assert step.digest is not None
    expected = expected_of(call, found.catalog, step.image, found.hashes)
    evidence = gather(found.catalog.candidate_repository.at(step.digest), loaded.keys, call.registry, now=call.now())
    passed = {(one.lane, one.suite) for one in evidence.all(Tested) if one.outcome is Outcome.PASSED}
    lanes = [f"lane {lane} has no pass" for lane, suite in expected.lanes.items() if (lane, suite.hash) not in passed]
    return ([UNVOUCHED] if shared and evidence.one(Built) is None else []) + lanes
