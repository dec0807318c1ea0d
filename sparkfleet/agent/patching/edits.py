"""Text edits on a file's bytes: exact, reversible, and blind to how its lines end."""

from collections.abc import Sequence

from .shapes import Edit


class EditError(ValueError):
    """An anchor that is not in the file exactly once; the message says which and how often it is."""


def forward(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Make every edit, in order.

    Raises EditError when an anchor is not there exactly once.
    """
    for number, edit in enumerate(edits, 1):
        data = _replace(data, edit.old, edit.new, f"edit {number} of {len(edits)}")
    return data


def backward(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Undo what ``forward`` did.

    Raises EditError when the text of an edit is not there exactly once.
    """
    for number, edit in reversed(list(enumerate(edits, 1))):
        data = _replace(data, edit.new, edit.old, f"edit {number} of {len(edits)}")
    return data


def check(data: bytes, edits: Sequence[Edit]) -> None:
    """Whether ``forward`` would find its anchors, without making a copy of the file.

    Raises EditError when an anchor is not there exactly once.
    """
    for number, edit in enumerate(edits, 1):
        _once(data, edit.old, _bytes(data, edit.old), f"edit {number} of {len(edits)}")


def contains(data: bytes, text: str) -> bool:
    """Whether the file has ``text``, however its lines end."""
    return _bytes(data, text) in data


def _replace(data: bytes, old: str, new: str, which: str) -> bytes:
    anchor = _bytes(data, old)
    _once(data, old, anchor, which)
    return data.replace(anchor, _bytes(data, new))


def _once(data: bytes, old: str, anchor: bytes, which: str) -> None:
    found = data.count(anchor)
    if found != 1:
        first = old.strip().splitlines()[0].strip()
        raise EditError(f"{which}: expected `{first[:60]}` and what follows once, found it {found} times")


def _bytes(data: bytes, text: str) -> bytes:
    """``text`` with the line ends of the file; a file that mixes them gets what most of its lines have."""
    encoded = text.encode("utf-8")
    if b"\r" not in data:  # nearly always, and told at the speed of memory
        return encoded
    return encoded.replace(b"\n", b"\r\n") if 2 * data.count(b"\r\n") > data.count(b"\n") else encoded
