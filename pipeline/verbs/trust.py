"""`sign` and `verify`: what is known of an image becomes signed statements, and they a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline import context, names, plan, releases, surroundings
from pipeline.call import Call, cosign_of, policy_of, policy_path, print_json, ready_for, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, PromotionRefused
from pipeline.inputs import InputHash
from pipeline.oci import Pinned, Repository, parse_reference
from pipeline.survey import survey
from pipeline.verbs.candidates import existing

if TYPE_CHECKING:
    from pipeline.cosign import PrivateKey
    from pipeline.evidence import Evidence, Role
    from pipeline.policies import Loaded
    from pipeline.policy import Allowed, Expected, Refused
    from pipeline.sign import Subject


def sign_verb(call: Call) -> int:
    """Check, sign and attach what is known of candidates."""
    from pipeline import keys, report
    from pipeline import sign as stage

    catalog = context.load(call.settings)
    _there(call)
    references = [text for text in call.images if "@" in text]
    named = [text for text in call.images if text not in references]
    plan.selected(catalog, named)
    cosign, loopback = cosign_of(call, catalog), catalog.candidate_repository.loopback

    def key(role: "Role") -> "PrivateKey":
        given = {each: call.environment.get(variable, "") for each, variable in names.ENV_KEY.items()}
        return keys.private(
            role, given, cache=call.settings.cache, loopback=loopback, cosign=cosign, environment=call.environment
        )

    desk = stage.Desk(
        settings=call.settings,
        registry=call.registry,
        cosign=cosign,
        key=key,
        roles=tuple(call.arguments.role or ("ci", "gpu")),
        now=call.now,
        story=call.console,
        run=call.arguments.run,
        absent=call.arguments.allow_none,
    )
    chosen = named or ([] if references else list(catalog.images))
    subjects = [*_candidates(call, catalog, chosen), *(_rescanned(call, catalog, text) for text in references)]
    signings = stage.sign(subjects, desk)
    if call.arguments.json:
        print_json(report.signings_json(signings))
    call.console.show(report.signings_table(signings))
    return 0


def _there(call: Call) -> None:
    """Raises `InputError` where statements are to be signed and the folder named is none, which would look like none to sign."""
    folder = call.settings.statements
    if folder and not call.arguments.allow_none and not folder.is_dir():
        raise InputError(
            f"there is no folder `{folder}`", hint="name in `--statements` what `build`, `test` and `scan` were given there"
        )


def _candidates(call: Call, catalog: Catalog, chosen: Sequence[str]) -> "Iterator[Subject]":
    from pipeline.sign import Subject

    if chosen:
        found = survey(call.settings, catalog, call.registry, chosen, story=call.console)
        for step in existing(found, chosen):
            expected = expected_of(call, catalog, step.image, found.hashes)
            yield Subject(image=step.image, pinned=_pinned(catalog, step), expected=expected)


def _rescanned(call: Call, catalog: Catalog, text: str) -> "Subject":
    """A candidate of any checkout, of which a newer look-up is signed and nothing else."""
    from pipeline.sign import Subject

    image, pinned = _named(call, catalog, text)
    if pinned.repository != catalog.candidate_repository:
        raise InputError(f"`{pinned}` is no candidate", hint=f"name it in `{catalog.candidate_repository}`")
    hashes = context.hashes(call.settings, catalog, [image])
    return Subject(image=image, pinned=pinned, expected=expected_of(call, catalog, image, hashes), rescanned=True)


def verify_verb(call: Call) -> int:
    """Say what is proved of images; with a policy, whether they may be released (exit 7 when not)."""
    from pipeline import policies, report

    if call.arguments.keys:
        return _verify_alone(call)
    catalog = context.load(call.settings)
    loaded = policy_of(call, catalog)
    ready_for(call, catalog, "registry")
    for problem in policies.idle(policy_path(call, catalog).parent, catalog.images, call.now()):
        call.console.warn(str(problem))
    subjects = _subjects(call, catalog)
    hashes = context.hashes(call.settings, catalog, [image for image, _ in subjects])
    decisions = [_decided(call, catalog, image, pinned, loaded, hashes) for image, pinned in subjects]
    if call.arguments.json:
        print_json(report.decisions_json([decision for decision, _ in decisions]))
    for decision, evidence in decisions:
        call.console.show(report.decision_table(decision, evidence))
        summarise(call, report.decision_markdown(decision, evidence))
    if call.arguments.issues:
        _write_issues(call, catalog, [decision for decision, _ in decisions])
        return 0
    refused = [decision for decision, _ in decisions if not _allowed(decision, may_wait=call.arguments.may_wait)]
    return PromotionRefused.exit_code if refused else 0


def _write_issues(call: Call, catalog: Catalog, decisions: "Sequence[Allowed | Refused]") -> None:
    """A file for each image: what is wrong with it by now, or will be, and who is affected; or why nothing is."""
    from pipeline import notices, records, report

    for decision in decisions:
        below = [name for name in plan.descendants(catalog, decision.image) if catalog.images[name].release]
        text = report.issue_markdown(decision, below)
        clear = "" if text else notices.clear(decision)
        notice = notices.Notice(image=decision.image, subject=str(decision.subject), text=text, clear=clear)
        records.write_text(call.arguments.issues / f"{decision.image}.json", notice.model_dump_json())


def _verify_alone(call: Call) -> int:
    """Evidence from references and a folder of keys alone: no catalog, and so no verdict.

    Exit 7 where the digest is not signed, nothing is said of it, or something that is said cannot be read.
    """
    from pipeline import keys, report
    from pipeline.evidence import Why
    from pipeline.gather import gather

    if not call.images:
        raise InputError("`--keys` wants references to verify", hint="`verify REGISTRY/REPOSITORY@sha256:… --keys DIR`")
    if call.arguments.policy:
        raise InputError(
            "with `--keys` there is no verdict, so no policy", hint="leave out `--keys`: a policy names its own keys"
        )
    ring = keys.in_folder(call.arguments.keys)
    evidence = [gather(_resolved(call, text), ring, call.registry, now=call.now()) for text in call.images]
    if call.arguments.json:
        print_json(report.evidence_json(evidence))
    for one in evidence:
        call.console.show(report.evidence_table(one))
    known = [one.signatures and one.counted and not one.because(Why.UNREADABLE, Why.CROWD) for one in evidence]
    return 0 if all(known) else PromotionRefused.exit_code


def _decided(
    call: Call, catalog: Catalog, image: str, pinned: Pinned, loaded: "Loaded", hashes: Mapping[str, InputHash]
) -> "tuple[Allowed | Refused, Evidence]":
    from pipeline.gather import gather
    from pipeline.policy import Case, decide

    now = call.now()
    evidence = gather(pinned, loaded.keys, call.registry, now=now)
    case = Case(
        image=image,
        evidence=evidence,
        expected=expected_of(call, catalog, image, hashes),
        now=now,
        registry_loopback=_is_ours_alone(call, pinned.repository),
        checkout=loaded.checkout,
        released_size=_released_size(call, catalog, image),
        exceptions=loaded.exceptions,
    )
    return decide(loaded.policy, case), evidence


def _is_ours_alone(call: Call, repository: Repository) -> bool:
    """Whether a registry is on this machine and no Harbor, which has other users."""
    return repository.loopback and surroundings.harbor(repository.host, call.environment, run=call.run) is None


def _released_size(call: Call, catalog: Catalog, image: str) -> int | None:
    """Compressed bytes of the image's last release; none where there is none."""
    repository = catalog.release_repository
    last = releases.highest(call.registry.tags(repository), catalog.line, catalog.images[image].variant)
    digest = call.registry.resolve(repository.tag(str(last))) if last else None
    return call.registry.manifest(repository.at(digest)).size if digest else None


def _allowed(decision: "Allowed | Refused", *, may_wait: bool) -> bool:
    from pipeline.policy import Allowed, waits

    return isinstance(decision, Allowed) or (may_wait and waits(decision))


def expected_of(call: Call, catalog: Catalog, image: str, hashes: Mapping[str, InputHash]) -> "Expected":
    """What this checkout expects of an image."""
    from pipeline.check import expected

    return expected(catalog, image, hashes[image], call.settings.images)


def _subjects(call: Call, catalog: Catalog) -> Sequence[tuple[str, Pinned]]:
    """Names mean the candidates of this checkout; references whatever they name, as the image that its label says."""
    texts = call.images or [name for name, image in catalog.images.items() if image.release]
    chosen = [text for text in texts if text in catalog.images]
    found = survey(call.settings, catalog, call.registry, chosen, story=call.console) if chosen else None
    steps = {step.image: step for step in existing(found, chosen)} if found else {}
    return [(text, _pinned(catalog, steps[text])) if text in steps else _named(call, catalog, text) for text in texts]


def _named(call: Call, catalog: Catalog, text: str) -> tuple[str, Pinned]:
    if "/" not in text:
        plan.require(catalog, text)
    pinned = _resolved(call, text)
    image = call.registry.config(pinned).labels.get(names.LABEL_IMAGE, "")
    if image not in catalog.images:
        raise InputError(
            f"`{text}` is no image of this catalog: its label says `{image or 'nothing'}`",
            hint="`verify REFERENCE --keys DIR` shows the evidence without a catalog",
        )
    return image, pinned


def _resolved(call: Call, text: str) -> Pinned:
    reference = parse_reference(text)
    if isinstance(reference, Pinned):
        return reference
    digest = call.registry.resolve(reference)
    if digest is None:
        raise InputError(f"there is no `{reference}`", hint="name it by its digest, or by a tag that its repository has")
    return reference.repository.at(digest)


def _pinned(catalog: Catalog, step: plan.Step) -> Pinned:
    assert step.digest is not None
    return catalog.candidate_repository.at(step.digest)
