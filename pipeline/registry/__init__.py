"""The only OCI HTTP: read manifests and blobs by digest, list tags and referrers, create tags, attach to images, copy blobs.

No tag of an image is moved, unless by `move_tag` and `put_manifest`, which say so.
Protocol: OCI distribution specification 1.1. What arrives is hashed before it is believed, and a manifest's bytes are
never written anew. A 404 means "not there" only when the registry says so in its own error format: an error page of
something in between is an error. Errors: `RegistryRefused` for rights and certificates, `NotThere` and `TooLarge` for
content, `TagConflict`, `Temporary` for what may pass, `ToolFailed` for all else; none of them holds a secret.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pipeline import names
from pipeline.credentials import Anonymous, Credentials
from pipeline.oci import Config, Descriptor, Digest, Manifest, Pinned, Repository, Tagged
from pipeline.registry import answers, copying, reading, referrers, writing
from pipeline.registry.trust import CERTIFICATES, Trust
from pipeline.registry.wire import Wire

BLOB_LIMIT = 64 * 2**20
"""Bytes of a blob that is held in memory; larger ones are streamed."""


class Registry:
    """A client of OCI registries, http on loopback and https elsewhere; may be used by several threads."""

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        certificates: Path | None = None,
        certificate_folder: Path = CERTIFICATES,
        locks: Path | None = None,
    ) -> None:
        """No connection is made yet; two threads never use one at the same time.

        Without `credentials` we are nobody. `certificates` is a PEM file of authorities, by default those of the HTTP
        library; docker's `certificate_folder` adds to them. In `locks`, by default in the user's cache folder, those
        who attach wait for each other.
        """
        self._wire = Wire(credentials or Anonymous(), Trust(certificates, certificate_folder))
        self._locks = locks

    def ping(self, host: str) -> None:
        """Raises unless a registry that we may read answers at `host`; a wrong password is told."""
        with self._wire.greet(host) as answer:
            if answer.status_code != 200:
                self._wire.fail(answer, f"`{host}` is not a registry that we can read", Repository(host, "x"))

    def clock(self, host: str) -> datetime | None:
        """What time it is at `host`, by its own word; None when it does not say."""
        with self._wire.greet(host) as answer:
            return answers.date(answer)

    def resolve(self, tagged: Tagged) -> Digest | None:
        """What the tag names now; None only when the registry says that it knows no such tag or repository."""
        content = reading.tagged_manifest(self._wire, tagged)
        return None if content is None else Digest.of(content)

    def manifest(self, pinned: Pinned) -> Manifest:
        """The image manifest with this digest, byte for byte."""
        return Manifest.parse(reading.pinned_manifest(self._wire, pinned)[0])

    def raw_manifest(self, pinned: Pinned) -> tuple[bytes, str]:
        """The manifest or index with this digest, byte for byte, and its media type; at most 4 MiB."""
        content, header = reading.pinned_manifest(self._wire, pinned)
        return content, reading.media_type(content, header, str(pinned))

    def manifest_body(self, pinned: Pinned) -> bytes:
        """The bytes that the registry holds as the manifest with this digest, whatever they say; at most 4 MiB."""
        return reading.pinned_manifest(self._wire, pinned)[0]

    def config(self, pinned: Pinned) -> Config:
        """The configuration of the image with this digest."""
        return Config.parse(self.blob(pinned.repository, self.manifest(pinned).config))

    def blob(self, repository: Repository, descriptor: Descriptor, *, limit: int = BLOB_LIMIT) -> bytes:
        """A verified blob; one of more than `limit` bytes raises `TooLarge` and is not read."""
        return reading.blob(self._wire, repository, descriptor, limit)

    def content(self, repository: Repository, digest: Digest, *, limit: int = BLOB_LIMIT) -> bytes:
        """The bytes with this digest, for whom no manifest is trusted to tell their size; more than `limit` raise `TooLarge`."""
        return reading.content(self._wire, repository, digest, limit)

    def stream(self, repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob in pieces; raises `ToolFailed` at the end unless size and digest are the descriptor's."""
        return reading.stream(self._wire, repository, descriptor)

    def tags(self, repository: Repository) -> tuple[str, ...]:
        """All tags of a repository, none when the registry does not know it."""
        return reading.tags(self._wire, repository)

    def referrers(self, pinned: Pinned, artifact_type: str | None = None, *, seen: bool = False) -> tuple[Descriptor, ...]:
        """All that refers to the image, of one type if one is named; each entry is only what the list says.

        An entry that does not tell its type is kept: its manifest tells. Raises `NotThere` when the registry does not
        hold the image, `ToolFailed` on more than 1,000 referrers. Who has `seen` the image there saves a request.
        """
        return (referrers.seen if seen else referrers.listed)(self._wire, pinned, artifact_type)

    def create_tag(self, repository: Repository, name: str, manifest: Manifest) -> Digest:
        """Create a tag for content that is there; returns what it names afterwards, which another may have decided."""
        return writing.create_tag(self._wire, repository, name, manifest)

    def move_tag(self, repository: Repository, name: str, manifest: Manifest, *, expected: Digest | None) -> None:
        """Let a tag name content that is there, if it names `expected` right now (None: nothing), or that content already.

        Raises `TagConflict` otherwise, when the registry does not let it move, and when it names something else afterwards.
        No registry can compare and set: another who writes between our look and our write is overwritten, and told so by
        its own look afterwards.
        """
        writing.move_tag(self._wire, repository, name, manifest, expected=expected)

    def mount(self, repository: Repository, descriptor: Descriptor, source: Repository) -> bool:
        """Whether the registry took the blob over from `source`, without a byte of it sent; False where it must be sent.

        Raises `RegistryRefused` when `source` may not be read, `NotThere` when it does not hold the blob.
        """
        return copying.mount(self._wire, repository, descriptor, source)

    def copy_blob(
        self,
        source: Repository,
        target: Repository,
        descriptor: Descriptor,
        *,
        advance: Callable[[int], None] = lambda amount: None,
    ) -> None:
        """Bring a blob into `target` unless it is there: mounted within one registry, else streamed, with no file in between.

        What breaks off goes on, or is begun anew, a few times; `Temporary` when that was not enough. A few MB of memory;
        may be called for several blobs at once. `advance` hears of each byte once; whatever it raises ends the
        copy and cancels the upload. Raises `NotThere` when `source` does not hold the blob, `ToolFailed` on other bytes.
        """
        copying.copy_blob(self._wire, source, target, descriptor, advance)

    def upload(self, repository: Repository, content: bytes, media_type: str = writing.BLOB_TYPE) -> Descriptor:
        """Bring a blob into the repository, unless it is there."""
        return writing.upload(self._wire, repository, content, media_type)

    def put_manifest(self, repository: Repository, content: bytes, media_type: str, tag: str | None = None) -> Pinned:
        """Write a manifest or index byte for byte, under its digest or, moving it if it exists, under a tag."""
        digest = Digest.of(content)
        writing.put_manifest(self._wire, repository, content, media_type, tag or str(digest))
        return repository.at(digest)

    def delete_manifest(self, pinned: Pinned) -> None:
        """Delete a manifest with all tags that name it, of a registry on this machine's loopback; of no other, ever."""
        if not pinned.repository.loopback:
            raise ValueError(f"`{pinned}` is not on loopback")
        writing.delete_manifest(self._wire, pinned)

    def attach(
        self,
        pinned: Pinned,
        artifact_type: str,
        layer: bytes,
        layer_type: str,
        annotations: Mapping[str, str],
        *,
        keep: bool = True,
    ) -> Descriptor:
        """Attach one layer to the image, and see it listed; content that is attached already is left, its entry returned.

        Raises `NotThere` when the registry does not hold the image, `Temporary` when the entry does not stay listed;
        without `keep` whether it stays is left to `keep_listed`.
        """
        from pipeline.registry import attaching

        entry = attaching.attach(self._wire, pinned, artifact_type, layer, layer_type, annotations, self._lock_folder)
        if keep:
            self.keep_listed(pinned, (entry,))
        return entry

    def adopt(self, pinned: Pinned, manifests: Sequence[bytes], *, keep: bool = True) -> tuple[Descriptor, ...]:
        """Write manifests that refer to the image, byte for byte, and list them; what they hold must be there.

        Raises `Temporary` when they do not stay listed; without `keep` that is left to `keep_listed`.
        """
        from pipeline.registry import attaching

        entries = attaching.adopt(self._wire, pinned, manifests, self._lock_folder)
        if keep:
            self.keep_listed(pinned, entries)
        return entries

    def keep_listed(self, pinned: Pinned, entries: Sequence[Descriptor]) -> None:
        """See that what was attached is still listed once others have had their time to write the same list.

        Where the registry keeps no list this waits, and adds again what is lost; raises `Temporary` when it stays lost.
        """
        from pipeline.registry import attaching

        attaching.keep_listed(self._wire, pinned, entries, self._lock_folder)

    def glance(self, pinned: Pinned) -> tuple[Descriptor, ...]:
        """What a list says that refers to the image, in as few requests as can be; empty when the image is not there."""
        return referrers.glanced(self._wire, pinned)

    @property
    def _lock_folder(self) -> Path:
        from platformdirs import user_cache_path

        return self._locks or user_cache_path(names.DISTRIBUTION, appauthor=False) / "locks"
