"""What builds and tools take over from this machine without its becoming part of an image: authorities, index, proxies."""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pipeline import credentials
from pipeline.command import Run
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.harbor import Harbor
    from pipeline.registry import Registry

PYPI = "https://pypi.org/simple"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY")
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Fedora, older Red Hats, SUSE and macOS keep what they trust."""

_SYSTEM_PIP = Path("/etc/pip.conf")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Facts of one machine."""

    certificates: Path | None = None
    """The certificate authorities that the machine trusts, one PEM file."""
    index_url: str = PYPI
    """The Python index."""
    proxies: Mapping[str, str] = field(default_factory=dict)
    """`HTTP_PROXY` and the like."""

    @property
    def passwords(self) -> tuple[str, ...]:
        """What may not be shown."""
        return tuple(spelled for url in (self.index_url, *self.proxies.values()) for spelled in _password(url))


def read(environment: Mapping[str, str]) -> Surroundings:
    """The surroundings as the environment and pip's own configuration tell them."""
    return Surroundings(
        certificates=certificates(environment),
        index_url=environment.get("UV_DEFAULT_INDEX") or environment.get("PIP_INDEX_URL") or _configured(environment) or PYPI,
        proxies={name: value for name in _PROXIES if (value := environment.get(name) or environment.get(name.lower()))},
    )


def registry(environment: Mapping[str, str], *, run: Run, cache: Path) -> "Registry":
    """A client of registries with the docker logins and the authorities of the user whose environment this is."""
    from pipeline.registry import Registry

    logins = credentials.of_docker(environment, run)
    return Registry(credentials=logins, certificates=certificates(environment), locks=cache / "locks")


def harbor(host: str, environment: Mapping[str, str], *, run: Run) -> "Harbor | None":
    """The Harbor at `host`, asked with the same logins and authorities; None when another registry answers there."""
    from pipeline.harbor import find

    return find(host, credentials=credentials.of_docker(environment, run), certificates=certificates(environment))


def certificates(environment: Mapping[str, str]) -> Path | None:
    """The certificate authorities that the machine trusts; raises `InputError` when the environment names no file."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if chosen := environment.get(name):
            if not Path(chosen).is_file():
                raise InputError(f"`{name}` names `{chosen}`, which is not a file", hint="name a PEM file, or unset the variable")
            return Path(chosen).resolve()
    return next((path for path in map(Path, _BUNDLES) if path.is_file()), None)


def _configured(environment: Mapping[str, str]) -> str | None:
    """`index-url` of pip's configuration files; the last one that has it counts, as with pip."""
    parser = configparser.RawConfigParser()
    files = _pip_files(environment)
    try:
        parser.read(files, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"pip's configuration cannot be read: {error}", hint="`pip config debug` shows the files") from error
    return parser.get("global", "index-url", fallback=None)


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or "/")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    chosen = environment.get("PIP_CONFIG_FILE")
    user = (home / ".pip" / "pip.conf", config / "pip" / "pip.conf", home / "Library/Application Support/pip/pip.conf")
    return [_SYSTEM_PIP, *user, *((Path(chosen),) if chosen else ())]


def _password(url: str) -> tuple[str, ...]:
    """The password in `url`, as written there and as meant."""
    try:
        written = urlsplit(url).password
    except ValueError:
        return ()
    return (written, unquote(written)) if written else ()
