"""A status as one file of HTML that can be mailed: nothing in it is fetched, and all that hosts say is escaped."""

import contextlib
from functools import cache
from pathlib import Path

import jinja2

from sparkfleet.errors import UserError
from sparkfleet.status import words
from sparkfleet.status.drift import moment
from sparkfleet.status.shapes import FleetStatus


def page(status: FleetStatus) -> str:
    """The whole page."""
    notes = [(words.named(one.hosts, status.hosts), one) for one in words.notes(status)]
    return _template().render(status=status, notes=notes, words=words, at=moment(status.at))


def write(status: FleetStatus, path: Path) -> None:
    """Write the page to ``path``, as a whole or not at all. Raises UserError."""
    beside = path.parent / f".{path.name}.new"
    try:
        beside.write_text(page(status), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UserError(f"{path}: the report cannot be written ({error.strerror}).") from None


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
