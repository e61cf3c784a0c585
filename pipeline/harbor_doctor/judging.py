"""What a project's rules do to the tags of a pipeline; pure."""

from collections.abc import Iterator, Sequence

from pipeline.diagnosis import Finding, State
from pipeline.harbor_doctor.places import Place, inside
from pipeline.oci import Tagged
from pipeline.tagrules import ImmutableRule, Retention, frozen_by

UI = "in Harbor: Projects, `{}`, {}"


def judged(place: Place, rules: Sequence[ImmutableRule]) -> Iterator[Finding]:
    """What immutable rules do to the tags of a project; raises `InputError` on a pattern that cannot be read."""
    name, where = f"{place.project}: rules", UI.format(place.project, "Policy, Tag Immutability")
    loose = [each for each in place.releases if not frozen(rules, each)]
    stuck = {each: rule for each in (*place.moving, *place.candidates) if (rule := frozen(rules, each))}
    for each in loose:
        off = next((rule for rule in rules if rule.disabled and _would_freeze(rule, each)), None)
        detail = f"no rule freezes `{each.name}` in `{each.repository.path}`" + (f": {off} is off" if off else "")
        yield Finding(name, State.FAULT, detail, f"enable it {where}" if off else place.apply)
    for each, rule in stuck.items():
        why = ", its pattern is empty, which means everything" if rule.empty else ""
        yield Finding(name, State.FAULT, f"{rule} freezes `{each.name}`, which must move{why}", f"narrow or delete it {where}")
    for rule in rules:
        if rule.inert and not rule.disabled:
            yield Finding(name, State.WARN, f"{rule} freezes nothing: a selector lacks", f"mend or delete it {where}")
    if not loose and not stuck:
        yield Finding(name, State.OK, "releases are frozen, all else can move" if place.releases else "no candidate is frozen")


def retained(place: Place, policy: Retention, rules: Sequence[ImmutableRule]) -> Iterator[Finding]:
    """What a retention policy deletes, with all evidence that refers to it; it leaves what is frozen."""
    name, where = f"{place.project}: retention", UI.format(place.project, "Policy, Tag Retention")
    lost = [
        each
        for each in (*place.releases, *place.candidates)
        if policy.deletes(inside(each), each.name) and not frozen(rules, each)
    ]
    when = "by itself" if policy.scheduled else "when somebody starts it"
    for each in lost:
        state = State.FAULT if policy.scheduled else State.WARN
        detail = f"it deletes artifacts like `{each.repository.path}:{each.name}` {when}, and their evidence with them"
        yield Finding(name, state, detail, f"retain always what is tagged `v*` {where}")
    if not lost:
        yield Finding(name, State.OK, "it keeps candidates and releases")


def frozen(rules: Sequence[ImmutableRule], tagged: Tagged) -> ImmutableRule | None:
    """The rule that freezes the tag."""
    return frozen_by(rules, inside(tagged), tagged.name)


def _would_freeze(rule: ImmutableRule, tagged: Tagged) -> bool:
    on = ImmutableRule(number=rule.number, tags=rule.tags, repositories=rule.repositories)
    return on.freezes(inside(tagged), tagged.name)
