"""The part of `doctor` about a Harbor: what is wrong with it and, with `--apply`, what is made there."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline import surroundings
from pipeline.call import Call
from pipeline.catalog import Catalog
from pipeline.diagnosis import Finding
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.harbor import Harbor


def harbor_findings(call: Call, catalog: Catalog) -> tuple[Finding, ...]:
    """What is wrong where the catalog, or the command line, says that releases and candidates are; nothing on loopback."""
    from pipeline import harbor_doctor
    from pipeline.harbor_doctor.places import places

    wanted = places(catalog, call.arguments.harbor)
    return harbor_doctor.examine(wanted, lambda host: _opened(call, host)) if wanted else ()


def apply_to_harbor(call: Call, catalog: Catalog) -> None:
    """Show what will be made, make it, and say which robots an administrator creates."""
    from pipeline import harbor_doctor
    from pipeline.harbor_doctor.places import places, robots

    wanted = places(catalog, call.arguments.harbor)
    if not wanted:
        raise InputError(
            "releases and candidates are on loopback, where there is no Harbor", hint="name one: `--harbor HOST/PROJECT`"
        )
    harbors = {host: _harbor(call, host) for host in dict.fromkeys(each.host for each in wanted)}
    plan = [(harbors[each.host], change) for each in wanted for change in harbor_doctor.changes(harbors[each.host], each)]
    for harbor, change in plan:
        call.console.say(f"will {change} at `{harbor.host}`")
    for harbor, change in plan:
        harbor_doctor.apply(harbor, change)
    call.console.say(f"{len(plan)} changes made" if plan else "all is there already: nothing to change")
    _say_robots(call, [json.dumps(each) for each in robots(wanted)], list(harbors))


def _say_robots(call: Call, bodies: Sequence[str], hosts: Sequence[str]) -> None:
    from pipeline.registry.session import base

    for host in hosts:
        call.console.say(f"robots that an administrator creates, each by one `POST {base(host)}/api/v2.0/robots`:")
    for body in bodies:
        call.console.say(body)


def _harbor(call: Call, host: str) -> "Harbor":
    found = _opened(call, host)
    if found is None:
        raise InputError(f"`{host}` is no Harbor", hint="name one: `--harbor HOST/PROJECT`")
    return found


def _opened(call: Call, host: str) -> "Harbor | None":
    return surroundings.harbor(host, call.environment, run=call.run)
