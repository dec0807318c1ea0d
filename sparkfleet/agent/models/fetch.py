"""Fetch a revision from a hub with its own client: the only part of the agent that talks to the network.

Run as the system user by a release's Python, which has huggingface_hub: ``<release>/bin/python -I agent.pyz fetch``, a
FetchOrder on standard input, events on standard output. Ends when standard input does.

``hf_hub_download`` of 2.x throws a partial file away when it fails, 0.x does not. The functions below it, which both
have, take the byte to go on from: so a file is resumed whichever client a release has.
"""

import ctypes
import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..errors import HostError
from ..wire import decode, encode
from .hub_shapes import Complete, FetchOrder, Have, HubFile, Listing, Progress, Trouble, TroubleKind, Waiting
from .model_files import INDEX, needed

T = TypeVar("T")

#: Files at a time. One connection of a content network seldom fills a Spark's 10 GbE.
_WORKERS = 4

#: Seconds to try when nothing has ever come: no network is told soon, a broken one is waited for.
_FIRST_PATIENCE = 20.0

_NETWORK = frozenset(("requests", "urllib3", "httpx", "httpx2", "httpcore", "httpcore2", "ssl", "socket"))

_PR_SET_DUMPABLE = 4  # linux/prctl.h


_TOO_FAR = "the hub has fewer bytes of it than it lists"


class _Stopped(Exception):
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble


def main() -> int:
    """Do one FetchOrder; the exit status."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # no other process of this user may read the token out of this one
    order = decode(FetchOrder, _line())
    tell = _teller()
    try:
        _fetch(order, tell)
        return 0
    except _Stopped as stopped:
        tell(stopped.trouble)
    except HostError as error:
        tell(Trouble("files", order.repository, str(error)))
    os._exit(1)  # other threads may be in the middle of a file: what they have written is resumed


def _line() -> str:
    """One line of standard input, byte by byte: what follows belongs to ``_end_with_input``."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            break
        line += byte
    if not line:
        os._exit(75)  # EX_TEMPFAIL: the agent is gone
    return line.decode()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(75)


def _teller() -> Callable[[Any], None]:
    """Events go to standard output; whatever the client prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(event: object) -> None:
        with lock:
            print(type(event).__name__, encode(event), file=out, flush=True)

    return tell


def _fetch(order: FetchOrder, tell: Callable[[Any], None]) -> None:
    hub = _Hub(order, tell)
    commit, files = order.revision, order.files
    if not files or commit == "unpinned":
        commit, listed = hub.list()
        files = files or listed
    tell(Listing(commit, files))
    have = decode(Have, _line()).keys
    threading.Thread(target=_end_with_input, daemon=True).start()
    wanted = {file.key: file for file in files if file.key not in have}  # the same bytes under two names: once
    _check_room(order, sum(file.size - hub.there(file) for file in wanted.values()))
    report = partial(_report, hub, files, wanted, tell)
    report()
    _every(order.interval, report)
    largest_first = sorted(wanted.values(), key=lambda file: -file.size)
    with ThreadPoolExecutor(_WORKERS) as pool:
        for done in as_completed([pool.submit(hub.fetch, file, commit) for file in largest_first]):
            tell(Complete(done.result()))


def _check_room(order: FetchOrder, missing: int) -> None:
    free = shutil.disk_usage(order.directory).free
    if missing > free:
        detail = f"{missing / 1e9:.1f} GB are to come, {free / 1e9:.1f} GB are free"
        raise _Stopped(Trouble("full", order.directory, detail))


def _report(hub: "_Hub", files: Sequence[HubFile], wanted: dict[str, HubFile], tell: Callable[[Any], None]) -> None:
    sizes = [hub.there(file) if file.key in wanted else file.size for file in files]
    whole = sum(size == file.size for size, file in zip(sizes, files, strict=True))
    tell(Progress(whole, sum(sizes)))


def _every(seconds: float, report: Callable[[], None]) -> None:
    def run() -> None:
        while True:
            time.sleep(seconds)
            report()

    threading.Thread(target=run, daemon=True).start()


class _Hub:
    """One revision of a repository, through huggingface_hub."""

    def __init__(self, order: FetchOrder, tell: Callable[[Any], None]) -> None:
        self.order, self.tell = order, tell
        self.directory = Path(order.directory)
        self.token: str | bool = order.token or False
        self.taken: set[str] = set()  # complete, and perhaps in the agent's hands already
        self.reached = False

    def there(self, file: HubFile) -> int:
        """Bytes of ``file`` that are on the disk."""
        if file.key in self.taken:
            return file.size
        for path in (self.directory / file.key, self._partial(file)):
            try:
                status = path.stat()
                return min(status.st_size, status.st_blocks * 512, file.size)  # xet may write with holes
            except OSError:
                continue
        return 0

    def _partial(self, file: HubFile) -> Path:
        return self.directory / f"{file.key}.incomplete"

    def list(self) -> tuple[str, tuple[HubFile, ...]]:
        """The commit of the wanted revision, and its files as far as an engine needs them."""
        from huggingface_hub import HfApi

        order = self.order
        revision = None if order.revision == "unpinned" else order.revision
        api = HfApi(endpoint=order.endpoint, token=self.token)
        info = self._steadily(
            lambda: api.model_info(order.repository, revision=revision, files_metadata=True, timeout=30),
            order.repository,
        )
        commit = str(info.sha)
        if revision is not None and commit != revision:
            raise _Stopped(Trouble("changed", order.repository, f"asked for {revision}, it answers with {commit}"))
        listed = {file.name: file for sibling in info.siblings or () if (file := _listed(sibling))}
        index = self._index(listed[INDEX], commit) if INDEX in listed else None
        return commit, tuple(listed[name] for name in needed(listed, index))

    def _index(self, file: HubFile, commit: str) -> str:
        key = self.fetch(file, commit)
        return (self.directory / key).read_text(encoding="utf-8")

    def fetch(self, file: HubFile, commit: str) -> str:
        """Have ``file`` with all its bytes, whatever it takes; its key."""
        whole, part = self.directory / file.key, self._partial(file)
        if not whole.exists():
            self._steadily(lambda: self._download(file, commit, part), file.name, part)
            os.replace(part, whole)
        self.taken.add(file.key)
        return file.key

    def _download(self, file: HubFile, commit: str, part: Path) -> None:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import build_hf_headers, http_get, xet_get  # type: ignore[attr-defined]

        url = hf_hub_url(self.order.repository, file.name, revision=commit, endpoint=self.order.endpoint)
        about = get_hf_file_metadata(url, token=self.token, timeout=30)
        self.reached = True
        _check_same(file, commit, about)
        headers = build_hf_headers(token=self.token)
        xet = getattr(about, "xet_file_data", None) if _has_xet() else None
        if xet is not None:
            part.unlink(missing_ok=True)  # xet keeps what it has by its own means
            part.touch()
            xet_get(incomplete_path=part, xet_file_data=xet, headers=headers, expected_size=file.size)
        else:
            if _origin(about.location) != _origin(url):
                headers.pop("authorization", None)  # a signed address of a content network
            with part.open("ab") as target:
                if target.tell() > file.size:
                    target.truncate(0)
                http_get(about.location, target, resume_size=target.tell(), headers=headers, expected_size=file.size)
        if (size := part.stat().st_size) != file.size:
            raise OSError(f"Consistency check failed: {size} bytes")

    def _steadily(self, step: Callable[[], T], name: str, part: Path | None = None) -> T:
        """Do ``step`` again while the hub asks to wait or the network breaks; patience is for standing still.

        Raises _Stopped when that does not help.
        """
        size, still, tries, pause = _size(part), time.monotonic(), 0, 1.0
        while True:
            try:
                result = step()
                self.reached = True
                return result
            except _Stopped:
                raise
            except Exception as error:
                trouble = _trouble(error, name)
                if part and trouble.detail == _TOO_FAR:
                    part.unlink(missing_ok=True)
                self.reached |= trouble.kind != "network"
            if _size(part) > size:
                size, still, tries, pause = _size(part), time.monotonic(), 0, 1.0
            tries += 1
            wait = pause if trouble.retry_after is None else trouble.retry_after
            patience = self.order.patience if self.reached else min(_FIRST_PATIENCE, self.order.patience)
            given_up = time.monotonic() + wait - still > patience or (trouble.kind == "truncated" and tries > 2)
            if not trouble.passing or given_up:
                raise _Stopped(trouble) from None
            self.tell(Waiting(wait, f"{name}: {trouble.detail}"))
            time.sleep(wait)
            pause = min(60.0, pause * 2)


def _listed(sibling: Any) -> HubFile | None:
    """A file of a listing; None for one that the hub does not say enough of."""
    lfs = sibling.lfs
    if lfs is not None:
        return HubFile(sibling.rfilename, int(lfs.size), f"sha256-{lfs.sha256}")
    if sibling.size is None or sibling.blob_id is None:
        return None
    return HubFile(sibling.rfilename, int(sibling.size), f"git-{sibling.blob_id}")


def _check_same(file: HubFile, commit: str, about: Any) -> None:
    """The hub gives what it listed: an address that answers with another revision is a mirror gone wrong."""
    if about.commit_hash != commit:
        detail = f"asked for revision {commit}, it answers with {about.commit_hash}"
        raise _Stopped(Trouble("changed", file.name, detail))
    digest = file.key.partition("-")[2]
    if len(about.etag or "") == len(digest) and about.etag != digest:
        raise _Stopped(Trouble("changed", file.name, f"expected {digest[:12]}…, it offers {about.etag[:12]}…"))


def _has_xet() -> bool:
    from huggingface_hub.file_download import is_xet_available  # type: ignore[attr-defined]

    return bool(is_xet_available())


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path else 0
    except OSError:
        return 0


_CODES: dict[str, TroubleKind] = {
    "GatedRepo": "gated",
    "RevisionNotFound": "revision",
    "EntryNotFound": "entry",
    "RepoNotFound": "repository",
}
_STATUSES: dict[int, TroubleKind] = {401: "denied", 403: "denied", 404: "repository", 429: "busy"}


def _trouble(error: BaseException, name: str) -> Trouble:
    """What an exception of the client means. Its two generations have different classes and the same answers."""
    response = getattr(error, "response", None)
    if response is not None:
        return _answer(response, name)
    said = " ".join(str(error).split())[:300]
    full = any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in _chain(error))
    if full or "No space left" in said:
        return Trouble("full", name, "no space left on the disk")
    if "Consistency check failed" in said:
        return Trouble("truncated", name, _sizes(said), passing=True)
    if type(error).__name__ == "FileMetadataError":
        return Trouble("not-a-hub", name, said)
    if isinstance(error, TimeoutError | ConnectionError) or type(error).__module__.split(".")[0] in _NETWORK:
        return Trouble("network", name, said or type(error).__name__, passing=True)
    return Trouble("other", name, f"{type(error).__name__}: {said}")


def _answer(response: Any, name: str) -> Trouble:
    status, headers = int(response.status_code), response.headers
    message = " ".join(str(headers.get("X-Error-Message") or "").split())[:200]
    detail = f"HTTP {status}{f', {message}' if message else ''}"
    if status == 416:
        return Trouble("truncated", name, _TOO_FAR, passing=True)
    if status == 401 and "Invalid credentials" in message:
        return Trouble("token", name, detail)
    kind = _CODES.get(str(headers.get("X-Error-Code"))) or _STATUSES.get(status, "hub")
    passing = status in (408, 425, 429) or status >= 500
    return Trouble(kind, name, detail, passing, _retry_after(headers) if passing else None)


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait, from ``Retry-After``, or from the hub's ``RateLimit: "api";r=0;t=55``."""
    said = str(headers.get("Retry-After") or "").strip()
    if said.isdigit():
        return float(said[:6])
    found = re.search(r";\s*r=0\s*;\s*t=(\d{1,6})", str(headers.get("RateLimit") or ""))
    return float(found[1]) if found else None


def _sizes(said: str) -> str:
    found = re.search(r"of size (\d+) but has size (\d+)", said)
    return f"it ends after {found[2]} of {found[1]} bytes" if found else "it ends too soon"


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__
