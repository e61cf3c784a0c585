"""Runs on one machine take turns: a lock file for each GPU, in a folder that all users share.

The kernel holds the locks (flock), so they end with the process that has them, however it ends. A slice (MIG) locks itself:
slices do not disturb each other, and a GPU in slices is never given as a whole. All runs take their GPUs in the same order,
so that no two wait for each other. Runners in containers see each other only where they are given the same folder.
"""

import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from pipeline import names
from pipeline.errors import ToolUnfit
from pipeline.gpus import Gpu
from pipeline.story import Story

FOLDER = Path("/run/lock") / names.DISTRIBUTION
"""In memory, the same for all users, gone at the next boot."""
POLL = 0.5
"""Seconds between two tries."""
SAY = 60.0
"""Seconds between two lines that say who has a GPU."""
TRIES = 20
"""How often a file is tried that another user has made and not yet opened to all."""
SHOWN = 200
"""Bytes of a lock file that are read: it is another user's."""


@contextmanager
def taking(gpus: Sequence[Gpu], *, story: Story, folder: Path = FOLDER) -> Iterator[None]:
    """Have `gpus` for ourselves among the runs of this machine; waits for its turn as long as it takes, and says for whom.

    An interrupt ends the waiting. Raises `ToolUnfit` when `folder` cannot be used.
    """
    with ExitStack() as held:
        if gpus:
            place = _opened(folder)
            held.callback(os.close, place)
        for uuid in sorted({gpu.uuid for gpu in gpus}):
            held.enter_context(_turn(uuid, place, folder, story))
        yield


@contextmanager
def _turn(uuid: str, place: int, folder: Path, story: Story) -> Iterator[None]:
    name = f"{quote(uuid, safe='')}.lock"
    file = _file(name, place, folder)
    try:
        _wait(file, uuid, story)
        _sign(file)
        yield
        os.ftruncate(file, 0)
    finally:
        os.close(file)


def _wait(file: int, uuid: str, story: Story) -> None:
    said = -SAY
    began = time.monotonic()
    while not _locked(file):
        passed = time.monotonic() - began
        if passed - said >= SAY:
            said = passed
            story.say(f"waiting for GPU {uuid}: {_holder(file)}" + (f"; {passed:.0f} s so far" if passed >= SAY else ""))
        time.sleep(POLL)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: int) -> None:
    """Say who has it; since when is the file's own time."""
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} of {_user()}".encode(), 0)
    os.utime(file)


def _holder(file: int) -> str:
    told = "".join(each for each in os.pread(file, SHOWN, 0).decode(errors="replace") if each.isprintable())
    since = datetime.fromtimestamp(os.fstat(file).st_mtime, UTC).astimezone()
    return f"{told or 'somebody'} has it since {since:%Y-%m-%d %H:%M:%S}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _opened(folder: Path) -> int:
    """The folder, made for all users when it lacks; never through a link, which another user may have put there."""
    try:
        try:
            folder.mkdir()
            folder.chmod(0o1777)
        except FileExistsError:
            pass
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unfit(folder, error) from error


def _file(name: str, place: int, folder: Path) -> int:
    """The lock file, made for all users when it lacks.

    An existing file is opened without `O_CREAT`, which Linux refuses for other users' files in such a folder
    (`fs.protected_regular`).
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fault = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    for _ in range(TRIES):
        try:
            return _regular(os.open(name, flags, dir_fd=place))
        except FileNotFoundError:
            pass
        except PermissionError as error:
            fault = error
            time.sleep(POLL / TRIES)
            continue
        except OSError as error:
            raise _unfit(folder / name, error) from error
        try:
            file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=place)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unfit(folder, error) from error
        os.fchmod(file, 0o666)
        return file
    raise _unfit(folder / name, fault)


def _regular(file: int) -> int:
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "not a regular file")


def _unfit(path: Path, error: OSError) -> ToolUnfit:
    folder = path if path.suffix != ".lock" else path.parent
    return ToolUnfit(
        f"runs that share GPUs cannot take turns by `{path}`: {error.strerror}",
        hint=f"as root: `rm -rf {folder} && install -d -m 1777 {folder}`, while nothing runs on the GPUs",
    )
