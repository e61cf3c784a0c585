"""Lock files."""

import hashlib

import pytest

from pipeline import locks
from pipeline.locks import LockFault, Package, PackagesLock, Requirement, RequirementsLock

DIGEST, OTHER = "0" * 64, "1" * 64


def test_a_requirements_lock_reads_back_as_it_was_written() -> None:
    lock = RequirementsLock(DIGEST, {"torch": Requirement("torch", "2.6.0+cu124", (DIGEST, OTHER), 2)})
    text = locks.format_requirements(lock)
    assert text == (
        f"# locked from: sha256:{DIGEST}\ntorch==2.6.0+cu124 \\\n    --hash=sha256:{DIGEST} \\\n    --hash=sha256:{OTHER}\n"
    )
    assert locks.parse_requirements(text) == lock


def test_requirements_are_written_by_name_whatever_order_they_were_found_in() -> None:
    a, b = Requirement("a", "1", (OTHER, DIGEST)), Requirement("b", "2", (DIGEST,))
    text = locks.format_requirements(RequirementsLock(DIGEST, {"a": a, "b": b}))
    assert text == locks.format_requirements(RequirementsLock(DIGEST, {"b": b, "a": a}))
    assert text.index(DIGEST, text.index("a==")) < text.index(OTHER)


def test_names_are_compared_as_python_indices_do() -> None:
    text = f"# locked from: sha256:{DIGEST}\nTyping_Extensions==4.0 --hash=sha256:{DIGEST}\n"
    assert locks.parse_requirements(text).requirements["typing-extensions"].version == "4.0"


def test_every_fault_of_a_requirements_lock_is_told_with_its_line() -> None:
    text = (
        f"torch==1 --hash=sha256:{DIGEST}\ntorch==2 --hash=sha256:{DIGEST}\n--index-url x\nnumpy>=1\npandas==2 \\\n    # via x\n"
    )
    with pytest.raises(LockFault) as caught:
        locks.parse_requirements(text)
    assert [(fault.line, fault.text) for fault in caught.value.faults] == [
        (1, "line 1 must be `# locked from: sha256:…`"),
        (2, "`torch` is locked twice"),
        (3, "`--index-url` is not `name==version`"),
        (4, "`numpy>=1` is not `name==version`"),
        (5, "`pandas==2` wants one or more `--hash=sha256:…` behind it, and nothing else"),
    ]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "hash_", [f"--hash=md5:{DIGEST}", f"--hash=sha256:{DIGEST[1:]}", "--hash=sha256:", "; python_version>'3'"]
)
def test_only_whole_sha256_hashes_stand_behind_a_requirement(hash_: str) -> None:
    with pytest.raises(LockFault):
        locks.parse_requirements(f"# locked from: sha256:{DIGEST}\na==1 {hash_}\n")


def test_a_packages_lock_reads_back_as_it_was_written_by_name() -> None:
    bash = Package("bash", "5.2.15-2+b13", "amd64", 10, DIGEST, "debian/pool/main/b/bash/bash_5.2_amd64.deb")
    apt = Package("apt", "1:2.6~x", "all", 9, OTHER, "debian-security/pool/updates/main/a/apt/apt_2.6~x_all.deb")
    text = locks.format_packages(PackagesLock(DIGEST, "bookworm", (bash, apt)))
    assert text.splitlines()[:3] == [
        f"# locked from: sha256:{DIGEST}",
        "# suite: bookworm",
        f"apt 1:2.6~x all 9 {OTHER} debian-security/pool/updates/main/a/apt/apt_2.6~x_all.deb",
    ]
    assert text.endswith(".deb\n")
    assert locks.parse_packages(text) == PackagesLock(DIGEST, "bookworm", (apt, bash))
    head, suite, first, second = text.splitlines()
    assert locks.parse_packages("\n".join([head, suite, second, first])) == PackagesLock(DIGEST, "bookworm", (apt, bash))


def test_a_lock_of_no_packages_is_one() -> None:
    assert locks.parse_packages(f"# locked from: sha256:{DIGEST}\n# suite: bookworm") == PackagesLock(DIGEST, "bookworm", ())


def test_every_fault_of_a_packages_lock_is_told_with_its_line() -> None:
    good = f"bash 5 amd64 10 {DIGEST} debian/pool/b.deb"
    escaping = f"dash 5 amd64 10 {DIGEST} debian/../b.deb"
    with pytest.raises(LockFault) as caught:
        locks.parse_packages(f"# locked from: sha256:{DIGEST}\n{good}\n{good}\nzsh 5\n{escaping}\n")
    assert [fault.line for fault in caught.value.faults] == [2, 3, 4, 5]
    assert caught.value.message.splitlines()[:2] == ["a lock cannot be read", "  line 2: line 2 must be `# suite: …`"]


@pytest.mark.parametrize("parse", [locks.parse_requirements, locks.parse_packages])
def test_an_empty_text_is_no_lock(parse: object) -> None:
    with pytest.raises(LockFault):
        parse("")  # type: ignore[operator]


def test_the_digest_of_a_source_is_of_its_requirements_and_not_of_its_comments() -> None:
    digest = locks.source_digest(b"torch==2.6.0\nnumpy\n")
    assert digest == locks.source_digest(b"# why\n  torch==2.6.0\n\nnumpy")
    assert digest not in map(locks.source_digest, [b"torch==2.6.0numpy", b"numpy\ntorch==2.6.0", b"torch==2.6.0", b""])


def test_the_digest_of_a_root_file_system_ignores_the_order_of_its_packages() -> None:
    assert locks.packages_digest("bookworm", ["b", "a"]) == locks.packages_digest("bookworm", ["a", "b", "a"])
    found = [("bookworm", ["a"]), ("trixie", ["a"]), ("bookworm", ["b"]), ("bookworm", ["a", "b"]), ("bookworm", [])]
    assert len({locks.packages_digest(suite, packages) for suite, packages in found}) == len(found)
    expected = hashlib.sha256(b"bookworm\n0\na\nb\nc\nlibx").hexdigest()
    assert locks.packages_digest("bookworm", ["libx", "c", "0", "b", "a"]) == expected, "locks that are written down hold it"


def test_an_overlay_is_named_after_the_lock_that_it_stands_in_for() -> None:
    assert locks.overlay_name("os", b"x") == "os-2d711642b726b044.lock"
    assert locks.overlay_name("os", b"y") != locks.overlay_name("os", b"x")


def test_the_digest_of_added_packages_is_of_what_is_below_too() -> None:
    below = {"libc6": "2", "bash": "5"}
    digest = locks.packages_digest("bookworm", ["a"], below)
    assert digest == locks.packages_digest("bookworm", ["a"], dict(reversed(below.items())))
    others = [{}, {"libc6": "2"}, {"libc6": "3", "bash": "5"}]
    assert digest not in [locks.packages_digest("bookworm", ["a"], other) for other in others]
