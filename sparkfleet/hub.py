"""What the hub says of a model's repository, asked as the hub's own client asks it.

The client decides which hub that is (``HF_ENDPOINT``), and with which token (its own places, or ``HF_TOKEN``): none is
taken on a command line, and none is shown.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models.model_files import INDEX, needed
from sparkfleet.catalog.recipes import File
from sparkfleet.errors import UserError

R = TypeVar("R")

_TIMEOUT = 60.0


@dataclass(frozen=True)
class Revision:
    """One commit of a repository, and every file of it that an engine needs."""

    commit: str
    files: tuple[File, ...]


def revision(repository: str, wanted: str = "main", report: Callable[[str], None] = lambda _: None) -> Revision:
    """The commit that ``wanted`` (a branch, tag or commit) is now, with sizes and hashes of its files.

    The hub knows the SHA-256 of large files; the small ones are fetched to find it, and checked against the Git hash
    that the hub lists. Raises UserError when the hub does not answer, does not let us, or lists what it does not have.
    """
    from huggingface_hub import HfApi  # here, because it takes a third of a second

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="sparkfleet")
    info = _asked(
        repository, lambda: api.model_info(repository, revision=wanted, files_metadata=True, timeout=_TIMEOUT)
    )
    commit, there = str(info.sha), {one.rfilename: one for one in info.siblings or ()}
    with TemporaryDirectory(prefix="sparkfleet-pin-") as scratch:

        def fetched(name: str) -> bytes:
            report(f"{repository}: {name}")
            path = _asked(repository, lambda: api.hf_hub_download(repository, name, revision=commit, cache_dir=scratch))
            return _checked(repository, there[name], Path(path).read_bytes())

        try:
            index = fetched(INDEX).decode("utf-8", "replace") if INDEX in there else None
            names = needed(there, index)
        except HostError as error:
            raise UserError(f"{repository} at {commit[:12]}: {error}") from None
        return Revision(commit, tuple(_file(there[name], fetched) for name in names))


def _file(listed: Any, fetched: Callable[[str], bytes]) -> File:
    if listed.lfs is not None:
        return File(name=listed.rfilename, size=listed.lfs.size, sha256=listed.lfs.sha256)
    content = fetched(listed.rfilename)
    return File(name=listed.rfilename, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _checked(repository: str, listed: Any, content: bytes) -> bytes:
    """``content`` if it is what the hub lists. Raises UserError for other bytes: a proxy or mirror may spoil them."""
    if listed.lfs is not None:
        right = hashlib.sha256(content).hexdigest() == listed.lfs.sha256
    else:
        right = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == listed.blob_id
    if not right:
        raise UserError(f"{repository}: {listed.rfilename}: other bytes came than the hub lists; a proxy or mirror?")
    return content


def _asked(repository: str, question: Callable[[], R]) -> R:
    """The answer, or UserError with what the hub's refusal means."""
    from huggingface_hub import errors

    token = "log in with the hub's client (`hf auth login`) or set HF_TOKEN"
    try:
        return question()
    except errors.GatedRepoError:
        raise UserError(f"{repository}: its owner wants to be asked: do so on its page, then {token}.") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{repository}: the hub has no such repository, or hides it: {token}.") from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{repository}: the hub has no such revision of it.") from None
    except errors.OfflineModeIsEnabled:
        raise UserError(f"{repository}: HF_HUB_OFFLINE is set, so the hub is not asked.") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no"
        hint = f": {token}" if status in (401, 403) else "; try again later" if status == 429 else ""
        raise UserError(f"{repository}: the hub answered with status {status}{hint}.") from None
    except Exception as error:  # the client's transport has errors of its own, which it does not name
        raise UserError(
            f"{repository}: the hub cannot be asked ({type(error).__name__}). Is HF_ENDPOINT right?"
        ) from None
