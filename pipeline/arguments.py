"""The command line: all verbs and their options."""

import argparse
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pipeline import names


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What the words of a command line say; what is wrong with them is told with the usage of their verb, exit 2."""
    arguments, left = parser().parse_known_args(argv)
    if left:
        arguments.usage.error(f"unrecognized arguments: {' '.join(left)}")
    return arguments


def parser() -> argparse.ArgumentParser:
    """All verbs and their options; no abbreviations."""
    top = argparse.ArgumentParser(prog=names.COMMAND, description=_summary(), allow_abbrev=False)
    top.add_argument("--version", action="version", version=_version())
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    setup = _verb(verbs, "setup", "find or get the tools, start what is missing")
    either = setup.add_mutually_exclusive_group()
    either.add_argument("--stop", action="store_true", help="stop the services that the pipeline started")
    either.add_argument(
        "--prune", action="store_true", help="say which old candidates our registry and the engine can do without"
    )
    setup.add_argument("--apply", action="store_true", help="with `--prune`: remove them")
    doctor = _verb(verbs, "doctor", "say what is wrong with this machine, and the remedy")
    doctor.add_argument("--clear", action="store_true", help="lift the machine's quarantine: GPU work is accepted again")
    doctor.add_argument(
        "--harbor", metavar="HOST/PROJECT", help="look at this Harbor alone, as a place for candidates and releases"
    )
    doctor.add_argument(
        "--apply", action="store_true", help="make the projects and rules that lack in the Harbor, and name its robots"
    )
    init = _verb(verbs, "init", "write a new family of images that already builds")
    init.add_argument("folder", nargs="?", type=_path, metavar="DIR", help="where; by default here")
    new = _verb(verbs, "new", "write the folder of a new image that already builds")
    new.add_argument("name", type=_word, metavar="NAME")
    new.add_argument("--parent", required=True, metavar="P", help="the image that it stands on")
    new.add_argument("--variant", metavar="V", help="how its tags end; by default its name without hyphens")
    lint = _verb(verbs, "lint", "find faults in Dockerfiles, locks and exceptions", images=True)
    plan = _verb(verbs, "plan", "say for each image whether it is built or reused, and why", images=True)
    plan.add_argument("--bake", action="store_true", help="print the definition for `docker buildx bake`")
    plan.add_argument(
        "--matrix", action="store_true", help="print all that a CI has to do, as one line of JSON; in Actions, outputs"
    )
    plan.add_argument("--since", metavar="COMMIT", help="with `--matrix`: what differs from this commit, whatever exists")
    plan.add_argument("--child-pipeline", action="store_true", help="with `--matrix`: print a child pipeline for GitLab")
    explain = _verb(verbs, "explain", "list what an image's input hash is made of, and what changed")
    explain.add_argument("image", metavar="IMAGE")
    explain.add_argument("--compatibility", action="store_true", help="say instead which drivers and GPUs it runs on")
    build = _verb(verbs, "build", "build what has no candidate yet, parents first", images=True)
    build.add_argument("--expect", metavar="DIGEST", help="exit 6 unless the image named gets this digest")
    build.add_argument("--twice", action="store_true", help="build without cache a second time and compare the digests")
    for command in (plan, build):
        command.add_argument("--rebuild", action="store_true", help="build although a candidate exists")
    build.add_argument(
        "--prove", action="store_true", help="build again what exists and nobody vouches for: it must get the same digest"
    )
    test = _verb(verbs, "test", "check the candidates", images=True)
    test.add_argument("--lane", choices=("cpu", "gpu"), action="append", help="only this lane (may be given twice)")
    test.add_argument("--require-gpu", action="store_true", help="a GPU lane that cannot run is exit 75")
    test.add_argument("--gpus", default="all", metavar="WHICH", help="all, a number of them, or UUIDs with commas between")
    test.add_argument("-k", dest="select", metavar="WORDS", help="only matching checks; nothing is recorded")
    test.add_argument(
        "--avoid", default="", metavar="WHICH", help="machines and GPUs, with spaces between: on them it is exit 75"
    )
    test.add_argument("--later", type=_path, metavar="FILE", help="write for `retry` what would be exit 75, and exit 0")
    test.add_argument(
        "--render", choices=("kubernetes",), help="print manifests of a Job per lane (by default `gpu`), run nothing"
    )
    test.add_argument("--queue", metavar="NAME", help="with `--render`: the Kueue queue that the Jobs wait in")
    test.add_argument(
        "--collect",
        type=_path,
        action="append",
        metavar="FILE",
        help="judge the log of such a Job, `-`: stdin (may be given twice)",
    )
    test.add_argument("--keep", action="store_true", help="keep the containers, and say how to enter them")
    retry = _verb(verbs, "retry", "say what is tried a second time, on another machine: what `test --later` wrote, and only that")
    retry.add_argument(
        "folder", type=_path, metavar="DIR", help="where the files `<job>.json` are; none where there is no such folder"
    )
    scan = _verb(verbs, "scan", "list what is in candidates, and what is known to be wrong with it")
    scan.add_argument("images", nargs="*", metavar="IMAGE", help="images of the catalog, or references; all when none is named")
    scan.add_argument(
        "--attached-sbom", action="store_true", help="look only through the lists that are attached to the references"
    )
    scan.add_argument("--from-sbom", type=_path, metavar="FILE", help="look only through this list of one image's packages")
    scan.add_argument("--require-database", action="store_true", help="vulnerabilities that cannot be assessed are exit 75")
    sign = _verb(verbs, "sign", "sign what is known of candidates, and attach it to them", images=True)
    sign.epilog = "Of references, `REPOSITORY@sha256:…`, only a newer look-up of their vulnerabilities is signed."
    sign.add_argument("--role", choices=("ci", "gpu"), action="append", help="sign only in this role (may be given twice)")
    sign.add_argument("--allow-none", action="store_true", help="images without statements are left, for `verify` to refuse")
    sign.add_argument("--run", metavar="ID", help="refuse statements of any other run")
    verify = _verb(verbs, "verify", "say what is proved of images, and whether a policy allows their release")
    verify.add_argument("images", nargs="*", metavar="IMAGE", help="images of the catalog, or references; all when none is named")
    verify.add_argument(
        "--policy", type=_path, metavar="FILE", help=f"by default policies/local.yaml or release.yaml ({names.ENV_POLICY})"
    )
    verify.add_argument("--issues", type=_path, metavar="DIR", help="write what is wrong by now with each, and exit 0")
    verify.add_argument(
        "--may-wait", action="store_true", help="what will be allowed with nothing done, once it is old enough, is no exit 7"
    )
    verify.add_argument(
        "--keys", type=_path, metavar="DIR", help="show the evidence by these public keys alone: no catalog, no verdict"
    )
    promote = _verb(verbs, "promote", "release candidates: image, evidence, verdict and tags, where users pull from")
    promote.add_argument("images", nargs="+", metavar="IMAGE", help="images of the catalog, or their floating tags")
    promote.add_argument("--number", metavar="N", help="the `N` of `v2.6.N`; by default the next one, in CI it must be given")
    promote.add_argument("--digest", metavar="DIGEST", help="this candidate, in place of the one of this checkout")
    promote.add_argument("--dry-run", action="store_true", help="show decision and plan, write nothing")
    promote.add_argument("--lift-hold", action="store_true", help="release over a rollback; wants `--reason`")
    promote.add_argument("--reason", metavar="TEXT", help="recorded in the verdict")
    rollback = _verb(verbs, "rollback", "let the floating tag name an older release, and hold it there")
    rollback.add_argument("image", metavar="IMAGE")
    rollback.add_argument("--to", required=True, metavar="RELEASE", help="the release, `2.6.2` or `v2.6.2-nlp`")
    withdraw = _verb(verbs, "withdraw", "mark a release as bad for good")
    withdraw.add_argument("tag", metavar="TAG", help="its immutable tag, `v2.6.3-nlp`")
    for command in (rollback, withdraw):
        command.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the verdict")
        command.add_argument("--dry-run", action="store_true", help="show what would be done, write nothing")
    history = _verb(verbs, "history", "list the releases of an image: what, when, who and why")
    history.add_argument("image", metavar="IMAGE")
    for command in (promote, rollback, withdraw, history):
        command.add_argument("--policy", type=_path, metavar="FILE", help=f"as for `verify` ({names.ENV_POLICY})")
    summary = _verb(
        verbs, "summary", "say what a change changes: why, and sizes, packages and vulnerabilities against the last release"
    )
    summary.add_argument(
        "folder", type=_path, metavar="DIR", help="what `plan --matrix`, `build --json` and `scan --json` printed there"
    )
    released = _verb(verbs, "released", "list what the floating tags name, and the commits that it was built from", images=True)
    released.add_argument("--of-the-day", action="store_true", help="one of them, another one every day")
    released.add_argument(
        "--record", type=_path, metavar="FILE", help="counts of releases on record elsewhere; where all are 0, none is no error"
    )
    issues = _verb(verbs, "issues", "say what is to be written into GitHub's issues about what is released")
    issues.add_argument("folder", type=_path, metavar="DIR", help="what `verify --issues` wrote")
    issues.add_argument("--there", type=_path, metavar="FILE", required=True, help="pages of open issues, as GitHub lists them")
    start = _verb(verbs, "run", "start an image as its users do")
    start.add_argument("image", metavar="IMAGE", help="an image of the catalog, or a reference")
    start.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="a program in the image and its words, in place of what the image starts: `run lab lab jupyter`",
    )
    update = _verb(verbs, "update", "solve the locks again and say what moved", images=True)

    for command in (doctor, lint, plan, explain, build, test, scan, sign, verify, promote, rollback, withdraw, history, update):
        command.add_argument("--json", action="store_true", help="data on stdout")
    for command in (setup, doctor, build):
        command.add_argument("--builder", metavar="NAME", help=f"a buildx builder of yours ({names.ENV_BUILDER})")
    for command in (build, test):
        command.add_argument("--junit", type=_path, metavar="FILE", help="write JUnit XML")
    for command in (build, test, scan, sign):
        command.add_argument("--statements", type=_path, metavar="DIR", help="where the unsigned statements are")
    return top


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, *, images: bool = False
) -> argparse.ArgumentParser:
    command = verbs.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    command.set_defaults(usage=command)
    command.add_argument("--root", type=_path, metavar="DIR", help=f"the folder that holds images/ ({names.ENV_ROOT})")
    command.add_argument("--candidates", metavar="REPOSITORY", help=f"where builds write ({names.ENV_CANDIDATES})")
    command.add_argument("--releases", metavar="REPOSITORY", help=f"where promotions write ({names.ENV_RELEASES})")
    if images:
        command.add_argument("images", nargs="*", metavar="IMAGE", help="all when none is named")
    return command


def _word(given: str) -> str:
    """What a variable that is not set leaves on a command line names nothing, and must not mean the folder that one stands in."""
    if not given.strip():
        raise argparse.ArgumentTypeError("an empty word names nothing")
    return given


def _path(given: str) -> Path:
    return Path(_word(given))


def _summary() -> str:
    return "Build, prove, sign and promote a family of GPU images."


def _version() -> str:
    try:
        return metadata.version(names.DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "from a checkout"
