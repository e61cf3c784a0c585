"""What a registry wants before it answers: `WWW-Authenticate` (RFC 9110, 11.6.1) and the distribution project's token service."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_PART = re.compile(
    r"[\s,]*(?:(?P<name>[\w!#$%&'*+.^`|~-]+)\s*=\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<bare>[^\s,\"]+))"
    r"|(?P<scheme>[\w!#$%&'*+.^`|~-]+)(?=[\s,]|$))"
)


@dataclass(frozen=True)
class Challenge:
    """One way to be let in; `scheme` and the names of `parameters` are lower case."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def realm(self) -> str:
        """For `bearer`: the address of the token service."""
        return self.parameters.get("realm", "")

    @property
    def service(self) -> str:
        """For `bearer`: who the token is for."""
        return self.parameters.get("service", "")


def parse(header: str) -> tuple[Challenge, ...]:
    """All challenges of a header; what cannot be read ends the list."""
    found: list[tuple[str, dict[str, str]]] = []
    for part in _parts(header):
        if part["scheme"]:
            found.append((part["scheme"].lower(), {}))
        elif found:
            found[-1][1][part["name"].lower()] = _value(part)
    return tuple(Challenge(scheme, parameters) for scheme, parameters in found)


def choose(header: str) -> Challenge | None:
    """The challenge that we answer: a token service if one is named, else Basic."""
    offered = {each.scheme: each for each in reversed(parse(header))}
    bearer = offered.get("bearer")
    return bearer if bearer and bearer.realm else offered.get("basic")


def joined(scope: str, wanted: str) -> str:
    """A scope with what a challenge wants besides of the same things, such as Azure's `metadata_read` for a list of tags.

    Of other things nothing is asked: GitHub's registry names an example where it is asked for none.
    """
    held = {resource: actions.split(",") for resource, _, actions in (part.rpartition(":") for part in scope.split())}
    for resource, _, actions in (part.rpartition(":") for part in wanted.split()):
        if resource in held:
            held[resource] += [action for action in actions.split(",") if action not in held[resource]]
    return " ".join(f"{resource}:{','.join(actions)}" for resource, actions in held.items())


def _parts(header: str) -> Iterator[re.Match[str]]:
    place = 0
    while part := _PART.match(header, place):
        yield part
        place = part.end()


def _value(part: re.Match[str]) -> str:
    return part["bare"] or re.sub(r"\\(.)", r"\1", part["quoted"] or "")
