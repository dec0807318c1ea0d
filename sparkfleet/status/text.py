"""A status as text: tables and what there is to read, fit for 80 columns; colour says nothing that words do not."""

import re
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sparkfleet.status import words
from sparkfleet.status.drift import moment
from sparkfleet.status.shapes import FleetStatus, RecipeStatus

_STYLES = {"good": "green", "passing": "yellow", "bad": "bold red"}
_KINDS = {"stops": "bold red", "": "bold red", "drift": "yellow", "warning": "yellow", "note": "dim"}

_MACHINES = ("host", "verdict", "driver", "kernel", "DGX OS", "memory")
_RECIPES = ("host", "recipe", "engine", "state", "since", "reqs", "KV", "verified", "tok/s")
_FIGURES = ("memory", "since", "reqs", "KV", "tok/s")

#: What only an engine can say.
_ASKED = ("reqs", "KV")

#: Columns that are folded where there is no room, the first first, and the least they keep.
_FOLDED = (
    ("recipe", 12),
    ("engine", 11),
    ("verdict", 13),
    ("kernel", 11),
    ("host", 12),
    ("recipe", 8),
    ("engine", 8),
    ("host", 8),
    ("state", 9),
)


def show(status: FleetStatus, console: Console, asked: bool = True) -> None:
    """Print all of ``status``, for a console of any width. ``asked``: engines were, what they are doing."""
    with console.capture() as capture:
        console.print(_all(status, console.width, asked))
    lines = (line.rstrip() for line in capture.get().splitlines())  # tables are filled up with spaces
    console.out("\n".join(lines), highlight=False)


def _all(status: FleetStatus, width: int, asked: bool) -> RenderableType:
    machines = [(name, one.verdict, *words.machine(one)) for name, one in status.hosts.items()]
    recipes = [_recipe(name, one) for name, host in status.hosts.items() for one in host.recipes]
    parts: list[RenderableType] = [Text(), _table(_MACHINES, machines, width)]
    if recipes:
        at = [n for n, name in enumerate(_RECIPES) if asked or name not in _ASKED]
        rows = [tuple(row[n] for n in at) for row in recipes]
        parts += [Text(), _table([_RECIPES[n] for n in at], rows, width)]
    for note in words.notes(status):
        parts += [Text(), *_note(words.named(note.hosts, status.hosts), note)]
    answered = next((one for host in status.hosts.values() for one in host.recipes if one.answer), None)
    if answered:
        parts += [Text(), _indented(f"asked     {answered.question}", 2), _indented(f"answered  {answered.answer}", 2)]
    parts += [Text(), Text(f"{words.summary(status)}. {moment(status.at)}")]
    return Group(*parts)


def _recipe(name: str, one: RecipeStatus) -> tuple[str, ...]:
    return (
        name,
        one.recipe,
        one.engine,
        one.state,
        words.duration(one.since),
        words.requests(one, "+{}"),
        words.kv_use(one),
        words.verified(one),
        words.speed(one),
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    gap = 2 if _natural(header, rows, 2) <= width else 1
    table = Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    widths = _widths(header, rows, width, gap)
    for name, size in zip(header, widths, strict=True):
        table.add_column(name, justify="right" if name in _FIGURES else "left", no_wrap=True, width=size)
    for row in rows:
        cells = [fold(cell, size) for cell, size in zip(row, widths, strict=True)]
        table.add_row(*map(_styled, header, cells, row))
    return table


def _styled(column: str, cell: str, whole: str) -> Text:
    if column in ("verdict", "state"):
        return Text(cell, _STYLES[words.level(whole)])
    if column == "verified" and cell in ("failed", "no"):
        return Text(cell, _STYLES["bad" if cell == "failed" else "passing"])
    return Text(cell)


def _natural(header: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> int:
    return sum(max(map(len, column)) for column in zip(header, *rows, strict=True)) + gap * (len(header) - 1)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, gap: int) -> list[int]:
    """The width of each column, where those that can be folded have given what is missing."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    missing = _natural(header, rows, gap) - width
    for name, least in _FOLDED:
        if missing > 0 and name in header:
            at = header.index(name)
            given = min(missing, max(0, widths[at] - least))
            widths[at], missing = widths[at] - given, missing - given
    return widths


def fold(name: str, width: int) -> str:
    """``name`` in lines of at most ``width``, broken after hyphens and spaces where there are any."""
    lines = [""]
    for piece in re.findall(r"[^- ]*[- ]?", name):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    whole = [line.rstrip() for line in lines]
    return "\n".join(line[at : at + width] for line in whole for at in range(0, max(1, len(line)), max(1, width)))


def _note(hosts: str, note: words.Note) -> list[RenderableType]:
    kind = f"{note.kind}: " if note.kind else ""
    first = Text(f"{hosts}: ", "bold")
    first.append(kind, _KINDS[note.kind])
    first.append(f"{note.what}.")
    parts: list[RenderableType] = [Padding(first, (0, 0, 0, 2))]
    return parts + ([_indented(f"{note.remedy}.", 4)] if note.remedy else [])


def _indented(text: str, by: int) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, by))
