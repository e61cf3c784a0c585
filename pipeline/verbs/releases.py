"""`promote`, `rollback`, `withdraw`, `history`: the release manager's verbs."""

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pipeline import context, names, plan, promotion, surroundings
from pipeline.call import Call, cosign_of, policy_of, print_json, ready_for, summarise
from pipeline.catalog import Catalog
from pipeline.errors import InputError, PromotionRefused, Temporary
from pipeline.inputs import InputHash
from pipeline.oci import Digest
from pipeline.verbs.trust import expected_of

if TYPE_CHECKING:
    from pipeline.cosign import PrivateKey
    from pipeline.evidence import Evidence
    from pipeline.harbor import Harbor
    from pipeline.policies import Loaded
    from pipeline.policy import Allowed, Refused
    from pipeline.promote import Desk, Judge, Prepared, Settled, Subject
    from pipeline.promotion import Promotion

WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "USER", "LOGNAME")
"""Where the environment tells who asks for a release."""
NO = ("", "0", "false", "no")


def promote_verb(call: Call) -> int:
    """Release candidates."""
    from pipeline import promote, report

    arguments, catalog = call.arguments, context.load(call.settings)
    given = promotion.number(arguments.number) if arguments.number is not None else None
    promotion.require_number(given, ci=call.environment.get("CI", "").lower() not in NO)
    _reasoned(arguments.lift_hold, arguments.reason)
    images = images_of(catalog, call.images)
    if arguments.digest and len(images) != 1:
        raise InputError("`--digest` is about one image", hint="name that image alone")
    loaded = policy_of(call, catalog, loopback=catalog.release_repository.loopback)
    hashes = context.hashes(call.settings, catalog, images)
    subjects = _subjects(call, catalog, images, hashes)
    desk = desk_of(call, catalog, loaded)
    settled = [] if arguments.lift_hold else [one for subject in subjects if (one := promote.settled(subject, desk))]
    left = [subject for subject in subjects if subject.image not in {one.image for one in settled}]
    judge = _judge(call, catalog, loaded, hashes, desk)
    prepared = promote.prepare(left, desk, judge, given=given, lift=arguments.lift_hold) if left else None
    for one in settled:
        call.console.say(f"nothing to do: {report.announcement(one)}")
        call.console.say(f"  its verdict is signed by `{one.key}`; evidence and policy were not looked at again")
        if given is not None and one.number != given:
            call.console.warn(f"`{one.image}` does not become number {given}: it is released as `{one.tag}`")
    written = _released(call, prepared, desk) if prepared else ()
    if arguments.json:
        print_json(report.promotions_json(settled, prepared, written))
    elif written and prepared:
        print(*_announced(settled, prepared), sep="\n")
    if prepared and prepared.refusal:
        raise prepared.refusal
    return 0


def _announced(settled: "Sequence[Settled]", prepared: "Prepared") -> Iterator[str]:
    """A line to paste for each image of the set, also for those that an earlier run had released."""
    from pipeline import report

    yield from map(report.announcement, settled)
    if isinstance(prepared.plan, promotion.Plan):
        yield from map(report.announcement, prepared.plan.promotions)


def _released(call: Call, prepared: "Prepared", desk: "Desk") -> "Sequence[Promotion]":
    """Show what was decided and planned; write it unless it is refused, or only to be shown."""
    from pipeline import promote, report

    for case in prepared.cases:
        call.console.show(report.decision_table(case.decision, case.evidence))
        call.console.show(report.weaknesses_screen(case.now, case.replaced))
        summarise(call, report.decision_markdown(case.decision, case.evidence))
        summarise(call, report.weaknesses_markdown(case.now, case.replaced))
    if isinstance(prepared.plan, promotion.Plan):
        call.console.show(report.promotion_table(prepared.plan))
    if prepared.refusal or call.arguments.dry_run:
        return ()
    written = promote.apply(prepared, desk, promote.Told(reason=call.arguments.reason or ""))
    for one in written:
        summarise(call, f"released: `{report.announcement(one)}`")
    return written


def images_of(catalog: Catalog, texts: Sequence[str]) -> Sequence[str]:
    """The images that are meant, parents first; a floating tag means its image. Raises for one that is never released."""
    floating = {catalog.floating_tag(image): name for name, image in catalog.images.items() if image.release}
    wanted = {plan.require(catalog, floating.get(text, text)).name for text in texts}
    if never := [name for name in wanted if not catalog.images[name].release]:
        raise PromotionRefused(
            f"`{never[0]}` is never released: its `image.yaml` says `release: false`", hint="release an image that stands on it"
        )
    return [name for name in catalog.images if name in wanted]


def _subjects(call: Call, catalog: Catalog, images: Sequence[str], hashes: Mapping[str, InputHash]) -> "Sequence[Subject]":
    """The candidates; our own registry is looked after only when it does not answer, which saves a request."""
    try:
        return [_subject(call, catalog, image, hashes) for image in images]
    except Temporary:
        ready_for(call, catalog, "registry")
        return [_subject(call, catalog, image, hashes) for image in images]


def _subject(call: Call, catalog: Catalog, image: str, hashes: Mapping[str, InputHash]) -> "Subject":
    """The candidate of this checkout, or the digest that was named, resolved once."""
    from pipeline.promote import Subject

    below = catalog.images[image].parent
    parent = below if below and catalog.images[below].release else None
    if call.arguments.digest:
        return Subject(image=image, source=catalog.candidate_repository.at(Digest(call.arguments.digest)), parent=parent)
    tagged = catalog.candidate_repository.tag(catalog.candidate_tag(catalog.images[image], hashes[image].value))
    digest = call.registry.resolve(tagged)
    if digest is None:
        raise InputError(f"there is no candidate of `{image}` for these inputs", hint=f"`nox -s build test scan sign -- {image}`")
    return Subject(image=image, source=tagged.repository.at(digest), parent=parent)


def desk_of(call: Call, catalog: Catalog, loaded: "Loaded") -> "Desk":
    """The release manager's desk."""
    from pipeline import credentials, harbor
    from pipeline.promote import Desk

    repository = catalog.release_repository

    @cache
    def found() -> "Harbor | None":
        login = credentials.of_docker(call.environment, call.run)
        return harbor.find(repository.host, credentials=login, certificates=surroundings.certificates(call.environment))

    return Desk(
        registry=call.registry,
        harbor=found,
        repository=repository,
        line=catalog.line,
        variants={name: image.variant for name, image in catalog.images.items() if image.release},
        cosign=cosign_of(call, catalog),
        key=lambda: _key(call, catalog),
        keys=loaded.keys,
        policy=loaded.checkout.policy,
        actor=next((who for name in WHO if (who := call.environment.get(name))), _login()),
        run=call.run_id,
        now=call.now,
        story=call.console,
    )


def _login() -> str:
    """Whom the system knows as this process's user; a user id without an entry is nobody."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "nobody known"


def _key(call: Call, catalog: Catalog) -> "PrivateKey":
    from pipeline import keys

    return keys.private(
        "release",
        {"release": call.environment.get(names.ENV_KEY["release"], "")},
        cache=call.settings.cache,
        loopback=catalog.candidate_repository.loopback and catalog.release_repository.loopback,
        cosign=cosign_of(call, catalog),
        environment=call.environment,
    )


def _judge(call: Call, catalog: Catalog, loaded: "Loaded", hashes: Mapping[str, InputHash], desk: "Desk") -> "Judge":
    from pipeline.policy import Case, decide

    def judge(image: str, evidence: "Evidence", released_size: int | None) -> "Allowed | Refused":
        here = evidence.subject.repository.loopback and desk.repository.loopback and desk.harbor() is None
        case = Case(
            image=image,
            evidence=evidence,
            expected=expected_of(call, catalog, image, hashes),
            now=call.now(),
            registry_loopback=here,
            checkout=loaded.checkout,
            released_size=released_size,
            exceptions=loaded.exceptions,
        )
        return decide(loaded.policy, case)

    return judge


def _reasoned(wanted: bool, reason: str | None) -> None:
    if wanted and not (reason or "").strip():
        raise InputError("a hold is lifted for a reason", hint='`--lift-hold --reason "…"`; it is recorded in the verdict')
