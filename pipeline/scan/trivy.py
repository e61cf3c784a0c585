"""Trivy's command lines: always by digest and from the registry, in an empty folder, without anybody's secrets.

Trivy 0.76: exit status 0 for whatever is found, so that any other is a failure of the scan. The scan cache is in memory,
because the one on disk can be held by one process only.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.errors import PipelineError, RegistryRefused, Temporary, ToolFailed
from pipeline.oci import Pinned
from pipeline.scan.bench import Bench
from pipeline.scan.java import empty_index
from pipeline.story import Task

SECONDS = 3600
"""Deadline of one scan: images of 100 GB have been seen to need half of that."""
QUICK_SECONDS = 300.0
"""Deadline of what reads a file of some megabytes."""
REPORT_LIMIT = 2**28
"""Bytes of a report."""
LAYER_MEMORY = 10**9
"""Bytes of memory for each layer that is looked at; two layers of gigabytes have been seen to take half of that together."""
PARALLEL = 5
"""Layers at a time at most; Trivy's own default."""
MEMORY = Path("/proc/meminfo")
PASSED_ON = ("PATH", "HOME", "DOCKER_CONFIG", "SSL_CERT_DIR", "XDG_RUNTIME_DIR", "LANG")
"""Variables of the user that it gets: how to reach registries as the user's docker does, and nothing else."""

LAYOUT = "layout"

_QUIET = ("--skip-version-check", "--disable-telemetry", "--no-progress")
_NO_UPDATES = ("--skip-db-update", "--skip-java-db-update", "--skip-check-update", "--offline-scan")
_KILLED = (-9, -15, 137, 143)
_REFUSED = re.compile(r"UNAUTHORIZED|DENIED|FORBIDDEN|status code 40[13]", re.IGNORECASE)
_PASSING = re.compile(
    r"deadline exceeded|timeout|TOOMANYREQUESTS|connection re(?:fused|set)|no such host|unexpected EOF|no space left"
    r"|temporary failure|network is unreachable|status code 5\d\d|may be in use",
    re.IGNORECASE,
)


class Trivy:
    """The scanner, working in one folder of its own."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        """`folder` is empty, on a disk with room for what Trivy unpacks."""
        self._bench = bench
        self.cache, self._here, self._temporary = (folder / name for name in ("cache", "here", "tmp"))
        for each in (self.cache, self._here, self._temporary):
            each.mkdir()
        empty_index(self.cache)

    def download(self, cache: Path, mirror: str | None, task: Task) -> None:
        """Bring the newest database into `cache`, from `mirror` or from where Trivy's makers publish it."""
        source = ("--db-repository", mirror) if mirror else ()
        words = ("--cache-dir", cache, "--download-db-only", "--timeout", f"{SECONDS}s")
        self._call("image", *words, *source, *_QUIET, seconds=SECONDS + 60, on_line=task.note)

    def version(self) -> bytes:
        """What it says of itself and of its database, as JSON."""
        return self._call("version", "--cache-dir", self.cache, "--format", "json", seconds=QUICK_SECONDS).encode()

    def image(self, pinned: Pinned, *, vulnerabilities: bool, log: Path, task: Task) -> bytes:
        """Look at all layers of an image; without `vulnerabilities` no database is needed."""
        scanners = "vuln,secret,license" if vulnerabilities else "secret,license"
        shape = ("--format", "json", "--list-all-pkgs", "--exit-code", "0", "--image-config-scanners", "secret")
        source = ("--image-src", "remote", "--platform", self._bench.platform, "--parallel", str(parallel()))
        words = (*source, "--scanners", scanners, *shape, *_NO_UPDATES, "--timeout", f"{SECONDS}s")
        return self._report("image", *words, str(pinned), seconds=SECONDS + 60, log=log, on_line=task.note)

    @contextmanager
    def layout(self) -> Iterator[Path]:
        """An empty folder for an image that `secrets` will look at."""
        folder = self._here / LAYOUT
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def secrets(self, *, log: Path, task: Task) -> bytes:
        """Look for secrets alone, in the image that lies in `layout`."""
        shape = ("--format", "json", "--exit-code", "0", "--scanners", "secret", "--timeout", f"{SECONDS}s")
        words = ("--input", LAYOUT, "--parallel", str(parallel()), *shape, *_NO_UPDATES)
        return self._report("image", *words, seconds=SECONDS + 60, log=log, on_line=task.note)

    def sbom(self, document: bytes) -> bytes:
        """Look at a list of packages alone."""
        (self._here / "document.json").write_bytes(document)
        shape = ("--format", "json", "--list-all-pkgs", "--exit-code", "0", "--scanners", "vuln")
        return self._report("sbom", *shape, *_NO_UPDATES[:2], "--offline-scan", "document.json", seconds=QUICK_SECONDS)

    def cyclonedx(self, report: bytes) -> bytes:
        """A report's packages as a CycloneDX document."""
        (self._here / "packages.json").write_bytes(report)
        (self._here / "bom.json").unlink(missing_ok=True)
        words = ("convert", "--format", "cyclonedx", "--output", "bom.json", "packages.json")
        self._call(*words, seconds=QUICK_SECONDS)
        return self._taken("bom.json")

    def _report(
        self,
        verb: str,
        *words: str,
        seconds: float,
        log: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> bytes:
        (self._here / "report.json").unlink(missing_ok=True)
        fixed = ("--cache-dir", self.cache, "--cache-backend", "memory", "--output", "report.json", *_QUIET)
        self._call(verb, *fixed, *words, seconds=seconds, log=log, on_line=on_line)
        return self._taken("report.json")

    def _taken(self, name: str) -> bytes:
        file = self._here / name
        if not file.is_file():
            raise ToolFailed(f"trivy ended without a failure and without a `{name}`")
        if (size := file.stat().st_size) > REPORT_LIMIT:
            raise ToolFailed(f"trivy's `{name}` has {size} bytes, more than {REPORT_LIMIT}")
        return file.read_bytes()

    def _call(
        self,
        *words: str | Path,
        seconds: float = SECONDS,
        log: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> str:
        bench = self._bench
        done = bench.run(
            bench.trivy,
            *words,
            timeout=seconds,
            cwd=self._here,
            env=self._environment(),
            bare=True,
            secrets=bench.around.passwords,
            on_line=on_line,
            log=log,
            check=False,
        )
        if done.code:
            raise failure(str(words[0]), done.code, done.stderr)
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        bench = self._bench
        passed = {name: bench.environment[name] for name in PASSED_ON if name in bench.environment}
        trusted = {"SSL_CERT_FILE": str(bench.around.certificates)} if bench.around.certificates else {}
        return {**passed, **bench.around.proxies, **trusted, "TMPDIR": str(self._temporary)}


def failure(verb: str, code: int, stderr: str) -> PipelineError:
    """What a failure of Trivy means: somebody's refusal, a fault that may pass, or one of Trivy's own."""
    reason = _reason(stderr)
    if code in _KILLED:
        text = f"`trivy {verb}` was killed, most likely for lack of memory"
        return Temporary(text, hint="run it again where more memory is free")
    text = f"`trivy {verb}` failed with exit status {code}: {reason}"
    if _REFUSED.search(reason):
        return RegistryRefused(text, hint="`docker login` with an account that may read it")
    return Temporary(text, hint="run the same command again") if _PASSING.search(reason) else ToolFailed(text)


def parallel() -> int:
    """How many layers are looked at at a time, by this machine's processors and free memory."""
    return max(1, min(PARALLEL, os.cpu_count() or 1, _available() // LAYER_MEMORY))


def _available() -> int:
    """Bytes of memory that are free, or would be made so; all that there is where the kernel does not tell."""
    with suppress(OSError):
        if match := re.search(r"^MemAvailable: +(\d+) kB$", MEMORY.read_text(encoding="ascii"), re.MULTILINE):
            return int(match[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reason(stderr: str) -> str:
    """The last thing that it complained of, in one line: of an error in errors, the innermost."""
    _, fatal, tail = stderr.rpartition("FATAL")
    text = tail.rpartition("\t* ")[2] if fatal else "\n".join(stderr.splitlines()[-3:])
    return " ".join(text.split())[:600] or "without a word"
