"""Whose certificates a registry may show, and which ones we show it: the machine's authorities and docker's `certs.d`."""

import ssl
import threading
from pathlib import Path

from requests.adapters import DEFAULT_CA_BUNDLE_PATH

from pipeline.errors import InputError, RegistryRefused

CERTIFICATES = Path("/etc/docker/certs.d")
"""Docker's folder: in it one for each `host[:port]`, with authorities (`*.crt`) and pairs of ours (`*.cert`, `*.key`)."""


class Trust:
    """TLS for each registry, read once; may be used by several threads."""

    def __init__(self, authorities: Path | None, folder: Path = CERTIFICATES) -> None:
        """`authorities` is one PEM file; None: those that come with the HTTP library."""
        self._authorities, self._folder = authorities, folder
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def special(self, host: str) -> bool:
        """Whether docker's folder says something of this host."""
        return bool(host) and (self._folder / host).is_dir()

    def context(self, host: str = "", *, pair: bool = True) -> ssl.SSLContext:
        """Certificates for one host, the machine's alone when none is named; without `pair` none of ours is shown.

        Raises `InputError` when a file of theirs cannot be read, `RegistryRefused` when half of a pair is missing.
        """
        with self._lock:
            if (host, pair) not in self._contexts:
                self._contexts[host, pair] = self._made(host, pair=pair)
            return self._contexts[host, pair]

    def _made(self, host: str, *, pair: bool) -> ssl.SSLContext:
        path = self._authorities or Path(DEFAULT_CA_BUNDLE_PATH)
        try:
            context = ssl.create_default_context(cafile=path)
            for path in sorted((self._folder / host).glob("*.crt")) if host else ():
                context.load_verify_locations(cafile=path)
            for path in sorted((self._folder / host).glob("*.cert")) if host and pair else ():
                context.load_cert_chain(path, _key_of(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(
                f"the certificates in `{path}` cannot be read: {reason}", hint="a PEM file is needed there"
            ) from error
        return context


def _key_of(certificate: Path) -> Path:
    key = certificate.with_suffix(".key")
    if not key.is_file():
        raise RegistryRefused(f"`{certificate}` has no key beside it", hint=f"put it at `{key}`, or remove the certificate")
    return key
