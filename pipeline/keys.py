"""Keys: the public ones that a policy, or a folder, names, and the private ones that a run may sign with.

On a laptop one development key has all roles. It protects nothing (it has no password, and lies in the cache folder), so
only a policy that says `development: true` accepts it, and it is never made for anything but a registry on loopback.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pipeline import dsse, names
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import InputError, ToolUnfit
from pipeline.evidence import Key, Role
from pipeline.gather import Keys
from pipeline.policy import SERVICES, ListedKey

ROLES: tuple[Role, ...] = get_args(Role)
DEVELOPMENT = "development"
MAKE = "`cosign generate-key-pair --output-key-prefix {0}`: `{0}.pub` into `policies/keys/`, its name into the policy"

NAME = "name one in {0}: a file that cosign made, `env://VARIABLE`, or a key in a service (`awskms://…`)"
KINDS = ("env", *SERVICES)
"""What a key may be reached by that is no file."""


def listed(
    keys: Sequence[ListedKey],
    files: Mapping[str, bytes],
    *,
    cache: Path,
    cosign: Callable[[], Cosign],
    environment: Mapping[str, str],
) -> Keys:
    """The public keys that a policy names, those in files from `files`; raises `InputError` for one that is none.

    Also for one that is listed twice: it could be revoked in one place, and count by the other.
    """
    found: list[tuple[Key, dsse.PublicKey]] = []
    for one in keys:
        if one.file:
            content = files[one.file]
        elif one.kms:
            content = cosign().public(PrivateKey(reference=one.kms, environment=environment))
        else:
            content = _bytes(_development(cache, "pub"), "the development key", hint="`nox -s sign` makes one")
        public = _public(content, one.name, one.file or "")
        if twin := next((key.name for key, other in found if other == public), None):
            raise InputError(f"the keys `{twin}` and `{one.name}` are one key", hint="list it once, with all of its roles")
        found.append((one.key, public))
    return found


def in_folder(folder: Path) -> Keys:
    """The public keys in a folder, whose names begin with their role: `ci.pub`, `gpu-2026.pub`, `release.pub`.

    One key under several names has all of their roles.
    """
    found: list[tuple[Key, dsse.PublicKey]] = []
    for path in sorted(folder.glob("*.pub")):
        role = next((role for role in ROLES if path.stem.partition("-")[0] == role), None)
        if role is None:
            raise InputError(f"`{path}` begins with no role", hint=f"name it by what it may sign: {', '.join(ROLES)}")
        public = _public(_bytes(path, "a key"), str(path))
        same = [key for key, other in found if other == public]
        found = [(key, other) for key, other in found if other != public]
        key = Key(
            name=" ".join((*(one.name for one in same), path.stem)), roles=frozenset({role}).union(*(k.roles for k in same))
        )
        found.append((key, public))
    if not found:
        raise InputError(
            f"there is no `*.pub` in `{folder}`", hint="put the public keys there: `ci.pub`, `gpu.pub`, `release.pub`"
        )
    return found


def private(
    role: Role, given: Mapping[str, str], *, cache: Path, loopback: bool, cosign: Cosign, environment: Mapping[str, str]
) -> PrivateKey:
    """The key to sign with in a role: what `given` names for it, else on loopback the development key, made when it lacks."""
    variable = names.ENV_KEY[role]
    if reference := given.get(role):
        if not reference.isprintable() or "-----BEGIN" in reference:  # it would be an argument of a program, and in messages
            raise InputError(f"`{variable}` holds a key, not where one is", hint=NAME.format(variable))
        key = PrivateKey(reference=reference, environment=environment)
        if key.scheme and key.scheme not in KINDS:
            raise InputError(f"`{variable}` names a kind of key that there is not: `{key.scheme}://`", hint=NAME.format(variable))
        return key
    if not loopback:
        raise ToolUnfit(f"there is no key for the role `{role}`", hint=NAME.format(variable))
    path = _development(cache, "key")
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        cosign.make_pair(path.parent, DEVELOPMENT)
    return PrivateKey(reference=str(path), environment={**environment, names.ENV_PASSWORD: ""})


def _development(cache: Path, kind: str) -> Path:
    return cache / "keys" / f"{DEVELOPMENT}.{kind}"


def _bytes(path: Path, what: str, *, hint: str = "") -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{what} cannot be read: `{path}`: {error.strerror}", hint=hint or MAKE.format(path.stem)) from error


def _public(content: bytes, name: str, file: str = "") -> dsse.PublicKey:
    told = f"`{name}` (`{file}`)" if file else f"`{name}`"
    if content.count(b"-----BEGIN") > 1:
        raise InputError(f"the key {told} is several keys in one file", hint="a file, and an entry in the policy, for each")
    try:
        return dsse.public_key(content)
    except InputError as error:
        raise InputError(f"the key {told} {error.message}", hint=MAKE.format(name)) from error
