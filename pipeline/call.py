"""One call of a verb: what it was told, and what all verbs do with that."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import names, surroundings
from pipeline.catalog import Catalog
from pipeline.command import Runner
from pipeline.console import Console
from pipeline.errors import InputError, NothingSelected, Temporary
from pipeline.oci import DIGEST, Repository
from pipeline.registry import Registry
from pipeline.settings import Settings
from pipeline.survey import Survey, survey

if TYPE_CHECKING:
    from pipeline.cosign import Cosign
    from pipeline.policies import Loaded
    from pipeline.setup import Ready


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a verb, and what it works with."""

    arguments: argparse.Namespace
    settings: Settings
    environment: Mapping[str, str]
    run: Runner
    console: Console
    now: Callable[[], datetime]
    run_id: str

    @property
    def images(self) -> Sequence[str]:
        """The images named on the command line, several in one word as a CI hands them on; all when none is.

        Raises `NothingSelected` for a word without any, which must not mean all.
        """
        words: Sequence[str] = self.arguments.images or ()
        if words and not all(map(str.strip, words)):
            raise NothingSelected(
                "an image is named by an empty word", hint="name it, or leave the word out where all may be meant"
            )
        return [name for word in words for name in word.split()]

    @cached_property
    def registry(self) -> Registry:
        """The registries, with this user's logins; made at the first use."""
        return surroundings.registry(self.environment, run=self.run, cache=self.settings.cache)


def ready_for(call: Call, catalog: Catalog, *needs: str, fresh: bool = False) -> "Ready":
    """What the verb needs, found, got or started.

    Without `fresh` the verb reads what is there: raises `Temporary` rather than start an empty registry at an address that
    the user chose.
    """
    from pipeline.readiness import Need
    from pipeline.setup import ensure

    if "registry" in needs and call.settings.candidates and not fresh:
        _there_already(catalog.candidate_repository, call.settings)
    return ensure(
        frozenset(map(Need, needs)),
        settings=call.settings,
        registry_host=catalog.candidate_repository,
        run=call.run,
        story=call.console,
        environment=call.environment,
    )


def _there_already(repository: Repository, settings: Settings) -> None:
    from pipeline import services

    if not repository.loopback or services.registry_port(repository.host) is not services.Port.FREE:
        return
    if not services.kept(repository.host, settings.cache):
        raise Temporary(
            f"nothing listens at `{repository.host}`, and no registry of ours has kept anything for there",
            hint=f"check {names.ENV_CANDIDATES} or `--candidates`; `nox -s build` with the same one starts a registry there",
        )


def survey_of(call: Call, catalog: Catalog, *, rebuild: bool = False) -> Survey:
    """The plan of the images named on the command line."""
    return survey(call.settings, catalog, call.registry, call.images, rebuild=rebuild, story=call.console)


def cosign_of(call: Call, catalog: Catalog) -> "Cosign":
    """cosign, got when it lacks."""
    from pipeline.cosign import Cosign

    ready = ready_for(call, catalog, "cosign")
    return Cosign(path=ready.tools["cosign"].path, run=call.run)


def policy_of(call: Call, catalog: Catalog, *, loopback: bool = True) -> "Loaded":
    """The policy that was named; else the local one for candidates on loopback, and the release policy for all others.

    Without `loopback` too: what is to be written is elsewhere. Raises `InputError` for a pinned digest that is none; an empty
    one pins nothing that exists, and is left for the policy to refuse.
    """
    from pipeline import policies

    pinned = call.environment.get(names.ENV_POLICY_DIGEST)
    if pinned and not DIGEST.fullmatch(pinned):
        raise InputError(
            f"`{names.ENV_POLICY_DIGEST}` is not a sha256 digest: `{pinned}`",
            hint="`nox -s verify -- --json` tells the digest of these policies as `policy`",
        )
    return policies.load(
        policy_path(call, catalog, loopback=loopback),
        pinned=pinned,
        cache=call.settings.cache,
        cosign=lambda: cosign_of(call, catalog),
        run=call.run,
        environment=call.environment,
    )


def policy_path(call: Call, catalog: Catalog, *, loopback: bool = True) -> Path:
    """Where the policy of `policy_of` lies."""
    chosen = getattr(call.arguments, "policy", None) or call.environment.get(names.ENV_POLICY)
    usual = "local.yaml" if catalog.candidate_repository.loopback and loopback else "release.yaml"
    return Path(chosen) if chosen else call.settings.root / "policies" / usual


def reaching(ready: "Ready", environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with which the engine is reached."""
    from pipeline import dockerhost

    return {**environment, **dockerhost.variables(environment)} if ready.engine else environment


def hand_out(call: Call, data: Any, junit: str) -> None:
    """JSON on stdout and JUnit in a file, as the command line asks."""
    if call.arguments.json:
        print_json(data)
    if call.arguments.junit:
        from pipeline import records

        records.write_text(call.arguments.junit, junit)


def summarise(call: Call, markdown: str) -> None:
    """Add to the summary of a job in GitHub Actions."""
    if place := call.environment.get("GITHUB_STEP_SUMMARY"):
        with Path(place).open("a", encoding="utf-8") as summary:
            summary.write(markdown + "\n")


def hand_on(call: Call, outputs: Mapping[str, str]) -> None:
    """Set outputs of a job in GitHub Actions; each is one line, since nothing else could be told from two outputs."""
    if place := call.environment.get("GITHUB_OUTPUT"):
        with Path(place).open("a", encoding="utf-8") as file:
            for name, text in outputs.items():
                assert text.isprintable()
                file.write(f"{name}={text}\n")


def content(file: Path) -> bytes:
    """A file that the command line names; raises `InputError` when it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"`{file}` cannot be read: {error.strerror}", hint="name a file that exists") from error


def print_json(data: Any) -> None:
    """Data on stdout."""
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
