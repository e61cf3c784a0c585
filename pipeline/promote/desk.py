"""What promotions, rollbacks and withdrawals work with, and the verdict that each of them signs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline import attest, names
from pipeline.cosign import Cosign, PrivateKey
from pipeline.errors import PromotionRefused, RegistryRefused, TagConflict, Temporary
from pipeline.evidence import AHEAD
from pipeline.gather import Keys
from pipeline.harbor import Harbor
from pipeline.oci import Manifest, Pinned, Repository
from pipeline.registry import Registry
from pipeline.story import Story

RIGHTS = frozenset({"artifact:read", "repository:pull", "repository:push", "tag:create"})
"""What a promotion needs of a Harbor."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """The release manager's: where releases are, whose verdicts count there, and the key that signs new ones."""

    registry: Registry
    harbor: Callable[[], Harbor | None]
    """The destination, where that is one; asked for when tags are created."""
    repository: Repository
    """Where releases are."""
    line: str
    variants: Mapping[str, str | None]
    """Of all images that are released."""
    cosign: Cosign
    key: Callable[[], PrivateKey]
    keys: Keys
    policy: str
    """Digest of policy, exceptions and keys."""
    actor: str
    run: str
    now: Callable[[], datetime]
    story: Story

    def may_sign(self) -> None:
        """Raises `PromotionRefused` unless a verdict of ours would be believed: our key is listed, and our clock is right."""
        if attest.listed(self.key(), self.keys, role="release", cosign=self.cosign, now=self.now()) is None:
            raise PromotionRefused(
                f"the key in {names.ENV_KEY['release']} may not sign as `release` under the policy: it is not listed there, "
                "revoked or retired",
                hint="sign with a key that the policy lists, or list this one under `keys:`",
            )

        there, here = self.registry.clock(self.repository.host), self.now()
        if there and abs(there - here) > AHEAD:
            raise PromotionRefused(
                f"it is {here:%Y-%m-%d %H:%M:%S} UTC here, and {there:%Y-%m-%d %H:%M:%S} UTC at `{self.repository.host}`; "
                "nothing was written",
                hint="set the clock that is wrong (`timedatectl`): a verdict with a wrong date counts too long, or not yet",
            )

    def may_write(self) -> None:
        """Raises before the first write where a Harbor would refuse a later one: `RegistryRefused` with the right that lacks."""
        harbor = self.harbor()
        if harbor is None:
            return
        if harbor.read_only():
            raise Temporary(f"`{harbor.host}` is read-only for now; nothing was written", hint="run the same command later")
        if missing := RIGHTS - harbor.rights(self.repository):
            listed = ", ".join(f"`{right}`" for right in sorted(missing))
            raise RegistryRefused(
                f"`{harbor.user}` lacks {listed} in `{self.repository}`; nothing was written",
                hint="`nox -s doctor` prints the permissions that a robot needs, for an administrator to give",
            )


def create_tag(target: Pinned, tag: str, manifest: Manifest, desk: Desk) -> None:
    """Create a tag that never moves; raises `TagConflict` when it names something else."""
    if harbor := desk.harbor():
        harbor.create_tag(target.repository, target.digest, tag)
        return
    named = desk.registry.create_tag(target.repository, tag, manifest)
    if named != target.digest:
        raise TagConflict(
            f"`{target.repository}:{tag}` names {named}: another was faster",
            hint="look at `nox -s history`, then release under the next number",
        )
