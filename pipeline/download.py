"""Files over HTTP, whole and verified or not at all.

What a server does not have is an answer; a server that cannot be reached is `Temporary`; a file that is not the wanted one
is `ToolFailed`.
"""

import hashlib
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from pipeline import names
from pipeline.errors import Temporary, ToolFailed
from pipeline.story import Task

CONNECT_SECONDS, READ_SECONDS = 10, 60
CHUNK = 2**18
ATTEMPTS = 3
"""How often a download that breaks off is begun."""
GONE = (404, 410)
RETRIED = (429, 500, 502, 503, 504)


def get(client: requests.Session, url: str) -> bytes:
    """The content of `url`, which must be there."""
    with closing(opened(client, url)) as answer:
        if answer.status_code in GONE:
            raise ToolFailed(f"`{shown(url)}` is not there", hint=f"does the mirror carry it? see `{names.ENV_DEBIAN_MIRROR}`")
        try:
            return answer.content
        except requests.RequestException as error:
            raise Temporary(f"`{shown(url)}` broke off: {_reason(error)}") from error


def download(client: requests.Session, url: str, path: Path, size: int, sha256: str, task: Task | None = None) -> bool:
    """Bring `url` to `path` whole and verified, or not at all; False when the server does not have it."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _download(client, url, path, size, sha256, task)
        except requests.RequestException as error:
            if attempt == ATTEMPTS:
                raise Temporary(f"`{shown(url)}` broke off: {_reason(error)}") from error
        except OSError as error:
            raise Temporary(f"`{path}` cannot be written: {error.strerror}", hint="is the disk full?") from error
    raise AssertionError


def opened(client: requests.Session, url: str) -> requests.Response:
    """An answer whose body is still to be read: 200, or one of `GONE`."""
    try:
        answer = client.get(url, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS))
    except requests.exceptions.SSLError as error:
        raise ToolFailed(
            f"the certificate of `{shown(url)}` is not accepted: {_reason(error)}",
            hint="add its authority to the ones that this machine trusts, or name a bundle in `SSL_CERT_FILE`",
        ) from error
    except requests.RequestException as error:
        raise Temporary(
            f"`{shown(url)}` cannot be reached: {_reason(error)}", hint=f"a mirror can be named in `{names.ENV_DEBIAN_MIRROR}`"
        ) from error
    if answer.status_code >= 500 or answer.status_code == 429:
        answer.close()
        raise Temporary(f"`{shown(url)}` answers {answer.status_code}")
    if answer.status_code != 200 and answer.status_code not in GONE:
        answer.close()
        raise ToolFailed(f"`{shown(url)}` answers {answer.status_code} {answer.reason}")
    return answer


def session(certificates: Path | None, *, retries: int = 4, parallel: int = 1) -> requests.Session:
    """A session that trusts `certificates`, the library's own authorities when None, and tries again what may pass."""
    made = requests.Session()
    made.verify = str(certificates) if certificates else True
    policy = Retry(retries, connect=min(retries, 2), other=0, backoff_factor=0.3, status_forcelist=RETRIED, raise_on_status=False)
    for scheme in ("https://", "http://"):
        made.mount(scheme, HTTPAdapter(pool_maxsize=parallel, max_retries=policy))
    return made


def holds(path: Path, size: int, sha256: str) -> bool:
    """Whether the file is there and is the wanted one."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def shown(url: str) -> str:
    """`url` without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _reason(error: requests.RequestException) -> str:
    """What is at the bottom of an error that urllib3 and requests have wrapped."""
    inner = error.args[0] if error.args else error
    return str(getattr(inner, "reason", None) or inner)


def _download(client: requests.Session, url: str, path: Path, size: int, sha256: str, task: Task | None) -> bool:
    partial, digest, left = path.with_name(f"{path.name}.part"), hashlib.sha256(), size
    try:
        with closing(opened(client, url)) as answer, partial.open("wb") as file:
            if answer.status_code in GONE:
                return False
            for chunk in answer.iter_content(CHUNK):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                file.write(chunk)
                if task:
                    task.advance(len(chunk))
        if left or digest.hexdigest() != sha256:
            raise ToolFailed(f"`{shown(url)}` is not the wanted file: {size - left} bytes, sha256 `{digest.hexdigest()}`")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True
