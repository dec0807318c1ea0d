"""Recipes of others turned into ours: of spark-vllm-docker (``recipe_version: "1"``) and of sparkrun (version 2).

Theirs are a container image and a command line with ``{placeholders}``. What of that an engine of our catalog knows is
taken; all the rest is listed, so that nobody believes it was taken too.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from sparkfleet.agent.secrecy import holds_secret, is_secret
from sparkfleet.catalog import recipes
from sparkfleet.catalog.architectures import of_repository
from sparkfleet.catalog.engines import ENGINES, Engine, engine
from sparkfleet.catalog.recipes import GIB, NOT_SHOWN, RESERVED, UNPINNED, Recipe
from sparkfleet.catalog.yaml import read
from sparkfleet.errors import UserError
from sparkfleet.memory.kv import kv_need

FILL_IN = "FILL IN"
"""Begins a value that only the user can give; a recipe is refused as long as it has one."""

#: Their keys that are read here, or that say nothing about how a model is served.
_READ = {"recipe_version", "sparkrun_version", "name", "description", "model", "model_revision", "defaults", "env"}
_READ |= {"command", "metadata", "runtime", "solo_only", "mode", "max_nodes"}

_RUNTIMES = {"vllm", "vllm-ray", "vllm-distributed", "eugr-vllm"}
#: Names of secrets, and what looks like one itself.
_SECRET = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS?|API[_-]?KEY|ACCESS[_-]?KEY(_ID)?)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_)[A-Za-z0-9_-]{8,}|(TOKEN|SECRET|PASSWORD|KEY)=", re.IGNORECASE)
_FILE = re.compile(r"\.(jinja2?|py|json|ya?ml)$")
_PLACEHOLDER = re.compile(r"\{(\w[\w-]*)\}")
_PASSES, _LONGEST = 10, 64 * 1024


@dataclass
class Imported:
    """A recipe as text, and what of theirs is not in it, one line each."""

    text: str
    left_out: list[str] = field(default_factory=list)


def imported(path: Path, engine_name: str | None = None, name: str | None = None) -> Imported:
    """The recipe in the file ``path``, theirs, as ours. ``engine_name``: the engine it is to be for; ``name``: what it
    is to be called, by default as its file is.

    Raises UserError when it is no such recipe, or not one of vLLM.
    """
    content = read(path).content
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path}: expected a recipe, a mapping of names to values.")
    wanted = engine(engine_name) if engine_name else newest()
    if not wanted.knowledge.exists():
        raise UserError(f"engine {wanted.name}: nobody knows what it accepts before `{wanted.lock_command}`.")
    if name is not None and name != _name(name):
        raise UserError(f"--name: expected lower-case letters, digits and . _ - inside; found {name!r:.60}.")
    return _Reader(path, content, wanted, name or _name(path.stem)).result()


def newest() -> Engine:
    """The engine of the newest vLLM of which there is a lock: others' images follow vLLM's newest."""
    known = [engine(path.stem) for path in sorted(ENGINES.glob("*.yaml"))]
    return max((one for one in known if one.gpu and one.lock.exists()), key=lambda one: Version(one.pins["vllm"]))


@cache
def _knowledge(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


class _Reader:
    def __init__(self, path: Path, theirs: dict[str, Any], wanted: Engine, name: str) -> None:
        self.path, self.theirs, self.engine, self.name = path, theirs, wanted, name
        self.known = _knowledge(wanted.knowledge)
        self.left_out: list[str] = []
        self.ours: dict[str, Any] = {}
        self.flags: dict[str, Any] = {}
        self.environment: dict[str, str] = {}

    def result(self) -> Imported:
        theirs = self.theirs
        repository = theirs.get("model")
        if not isinstance(repository, str) or not repository:
            raise UserError(f"{self.path}: model: expected a repository of the hub; found {repository!r:.60}.")
        runtime = str(theirs.get("runtime") or "vllm")
        if runtime not in _RUNTIMES:
            raise UserError(f"{self.path}: runtime: {runtime!r:.40} is not vLLM; sparkfleet serves with vLLM only.")
        self._foreign_keys()
        self._command()
        self._variables()
        return Imported(self._dump(repository), self.left_out)

    def _leave(self, what: str, why: str) -> None:
        self.left_out.append(f"{what}: {why}")

    # --- what is around the command ---------------------------------------------------------------------------

    def _foreign_keys(self) -> None:
        inner = self.theirs.get("runtime_config")
        for key, value in {**self.theirs, **(inner if isinstance(inner, dict) else {})}.items():
            if key in _READ or key == "runtime_config" or value in (None, False, "", [], {}):
                continue
            if key == "mods":
                for mod in value if isinstance(value, list) else [value]:
                    self._leave(f"mod {_short(mod)}", "it changes their image; what a release needs is our patch set's")
            elif key == "build_args":
                self._leave(
                    f"build_args {_short(value)}", f"how their image is built; {self.engine.name} is from wheels"
                )
            elif key == "container":
                self._leave(f"container {_short(value)}", f"an image; {self.engine.name} is taken instead")
            elif key in ("min_nodes", "cluster_only"):
                if key == "cluster_only" or value != 1:
                    self._leave(f"{key} {_short(value)}", "it spans several Sparks, this recipe one")
            else:
                self._leave(
                    f"{_short(key)}{'' if _SECRET.search(key) or holds_secret(key, value) else ' ' + _short(value)}",
                    "without a counterpart",
                )

    def _variables(self) -> None:
        given = self.theirs.get("env") or {}
        if not isinstance(given, dict):
            raise UserError(f"{self.path}: env: expected names and values; found {_short(given)}.")
        for name, value in given.items():
            text = str(value)
            if _SECRET.search(str(name)) or _SECRET_VALUE.search(text) or holds_secret(str(name), value):
                self._leave(f"variable {_short(name)}", RESERVED["api-key"])
            elif "$" in text or re.search(r"[\r\n\0]", text):
                self._leave(f"variable {name}", "its value is made on their control machine")
            elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
                self._leave(f"variable {_short(name)}", "not the name of a variable")
            elif str(name).startswith("VLLM_") and name not in self.known["environment"]:
                self._leave(f"variable {name}={_short(text)}", f"{self.engine.name} does not know it{self._who(name)}")
            else:
                self.environment[str(name)] = text

    def _who(self, name: str, kind: str = "environment") -> str:
        """Which other engines know a flag or variable, as the end of a sentence."""
        knowing = []
        for path in sorted(ENGINES.glob("*.knowledge.json")):
            if name in _knowledge(path)[kind]:
                knowing.append(path.name.removesuffix(".knowledge.json"))
        return f"; these do: {', '.join(knowing)}" if knowing else ", nor does any engine here (a fork's, or misspelt)"

    # --- the command ------------------------------------------------------------------------------------------

    def _command(self) -> None:
        words = self._words()
        taken = 0
        for name, value in _pairs(words, self.known["flags"]):
            if name is None:
                if taken or str(value) != str(self.theirs["model"]):
                    self._leave(f"argument {_short(value)}", "no flag, and not the model")
                taken += 1
            else:
                self._flag(name, value)

    def _words(self) -> list[str]:
        command = self.theirs.get("command")
        if command in (None, ""):
            return [str(self.theirs["model"]), *self._from_defaults()]
        if not isinstance(command, str):
            raise UserError(f"{self.path}: command: expected text; found {_short(command)}.")
        try:
            words = shlex.split(self._filled(command), comments=True)
        except ValueError as error:
            raise UserError(f"{self.path}: command: cannot be read as a command line ({error}).") from None
        places = [i for i in range(len(words) - 1) if words[i].split("/")[-1] == "vllm" and words[i + 1] == "serve"]
        if len(places) != 1:
            raise UserError(f"{self.path}: command: expected one `vllm serve`; found {len(places)}.")
        for word in words[: places[0]]:
            self._leave(f"before the command: {_short(word)}", "nothing runs before the engine but the guard")
        return words[places[0] + 2 :]

    def _filled(self, template: str) -> str:
        """The command with every placeholder replaced, again and again, as they do it."""
        values = {str(k): str(v) for k, v in self._defaults().items()} | {"model": str(self.theirs["model"])}
        text = template.replace("\\\n", " ")
        open_brace, close_brace = "\x01", "\x02"  # doubled braces stand for themselves
        text = text.replace("{{", open_brace).replace("}}", close_brace)
        for _ in range(_PASSES):
            filled = _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)
            if len(filled) > _LONGEST:
                raise UserError(
                    f"{self.path}: command: longer than {_LONGEST} characters once its placeholders are filled."
                )
            if filled == text:
                break
            text = filled
        for name in sorted({found[1] for found in _PLACEHOLDER.finditer(text)}):
            raise UserError(f"{self.path}: command: {{{name}}} has no default.")
        return text.replace(open_brace, "{").replace(close_brace, "}")

    def _defaults(self) -> Mapping[object, object]:
        given = self.theirs.get("defaults") or {}
        if not isinstance(given, dict):
            raise UserError(f"{self.path}: defaults: expected names and values; found {_short(given)}.")
        return given

    def _from_defaults(self) -> Iterator[str]:
        """Flags by the names of defaults: what sparkrun does without a command."""
        for key, value in self._defaults().items():
            name = str(key).replace("_", "-")
            name = {"tensor-parallel": "tensor-parallel-size", "pipeline-parallel": "pipeline-parallel-size"}.get(
                name, name
            )
            if value is True:
                yield f"--{name}"
            elif value is False:
                yield f"--no-{name}"
            elif value is not None:
                yield f"--{name}={value}"

    def _flag(self, name: str, value: str | bool) -> None:
        known = self.known["flags"].get(f"--{name}")
        said = f"flag --{name}" + ("" if value is True else f" {_short(value)}")
        if _SECRET.search(name) or is_secret(name, str(value)):
            self._leave(f"flag --{name}", RESERVED["api-key"])
        elif name in RESERVED:
            self._reserved(name, value, said)
        elif name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "nnodes"):
            one = str(value) == "1"
            self._leave(
                said, "one Spark is what every recipe is for" if one else "it spans several Sparks, this recipe one"
            )
        elif name in ("distributed-executor-backend", "node-rank", "master-addr", "headless"):
            self._leave(said, "it spans several Sparks, this recipe one")
        elif known is None:
            self._leave(said, f"{self.engine.name} does not know it{self._who('--' + name, 'flags')}")
        elif known.get("many"):
            self._leave(said, "a flag of several values, which a recipe cannot say")
        elif isinstance(value, str) and _FILE.search(value):
            self._leave(said, "a file of theirs; bring it yourself and give its path on the host")
        elif problem := self._parser(name, value):
            self._leave(said, problem)
        else:
            self._take(name, value, known, said)

    def _take(self, name: str, value: str | bool, known: Mapping[str, Any], said: str) -> None:
        typed = _typed(value, str(known["type"]))
        if typed is None or (isinstance(typed, str) and re.search(r"[\r\n\0]", typed)):
            self._leave(said, f"not a value of the kind that it takes ({known['type']})")
        elif _SECRET_VALUE.search(str(value)):
            self._leave(f"flag --{name}", RESERVED["api-key"])
        else:
            self.flags[name] = typed

    def _parser(self, name: str, value: str | bool) -> str:
        kind = {"reasoning-parser": "reasoning", "tool-call-parser": "tool"}.get(name)
        if not kind or value in self.known["parsers"][kind]:
            return ""
        near = get_close_matches(str(value), self.known["parsers"][kind], n=3, cutoff=0.4)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return f"{self.engine.name} has no such parser{hint}"

    def _reserved(self, name: str, value: str | bool, said: str) -> None:
        if name == "max-model-len" and (tokens := _tokens(str(value))):
            self.ours["context"] = tokens
        elif name == "port" and str(value).isascii() and str(value).isdigit() and 1024 <= int(value) <= 65535:
            self.ours["port"] = int(value)
        elif name == "served-model-name" and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:-]*", str(value)):
            self.ours["served_as"] = value
        elif name == "kv-cache-memory-bytes" and str(value).isascii() and str(value).isdigit():
            self.ours["kv_bytes"] = int(value)
        elif name == "host":
            if value not in ("127.0.0.1", "localhost"):
                self._leave(
                    said, "units serve on 127.0.0.1; say `bind`, and have an API key, if others are to reach it"
                )
        elif name == "model":
            if value != self.theirs["model"]:
                self._leave(said, "the recipe's model is another")
        else:
            self._leave(said, RESERVED.get(name, "not taken"))

    # --- what comes of it -------------------------------------------------------------------------------------

    def _dump(self, repository: str) -> str:
        name, twin = self.name, _twin(repository)
        recipe: dict[str, Any] = {
            "name": name,
            "title": _line(self.theirs.get("description") or self.theirs.get("name") or repository),
            "engines": [{"name": self.engine.name, "evidence": f"{NOT_SHOWN}; imported, not tried"}],
            "model": self._model(name, repository, twin),
            "served_as": self.ours.get("served_as", repository if re.fullmatch(r"[\w./:-]+", repository) else name),
            "port": self.ours.get("port", 8000),
            "context": self.ours.get("context", f"{FILL_IN}: tokens of one conversation; theirs is the model's own"),
            "flags": self.flags,
            "environment": self.environment,
            "memory": self._memory(repository, twin),
            "start_timeout": 3000,
            "canary": {"max_tokens": 1000},
            "evidence": f"{NOT_SHOWN} with this engine; imported from {self.path.name}",
        }
        return yaml.safe_dump(recipe, sort_keys=False, width=110, allow_unicode=True)

    def _model(self, name: str, repository: str, twin: Recipe | None) -> dict[str, Any]:
        revision = str(self.theirs.get("model_revision") or UNPINNED)
        if not re.fullmatch(rf"[0-9a-f]{{40}}|{UNPINNED}", revision):
            self._leave(
                f"model_revision {_short(revision)}", "no commit; `sparkfleet pin --revision` finds which one it is"
            )
            revision = UNPINNED
        found = {"name": name, "repository": repository, "revision": revision}
        if twin:
            said = twin.model.model_dump(
                mode="json", include={"source", "architecture", "quantization"}, exclude_none=True
            )
            return found | {"bytes": twin.model.size, "source": f"as {twin.name}"} | said
        size = f"{FILL_IN}: bytes of the model's files; or let `sparkfleet pin` list them"
        return found | {"bytes": size, "source": FILL_IN}

    def _memory(self, repository: str, twin: Recipe | None) -> dict[str, Any]:
        context = self.ours.get("context")
        kind = str(self.flags.get("kv-cache-dtype", "auto"))
        need = kv_need(of_repository(repository), context, kind).bytes if context else None
        # Two conversations of full length, in whole GiB: what is pinned is also what is taken.
        reckoned = -(-2 * need // GIB) * GIB if need else f"{FILL_IN}: bytes of the KV cache"
        return {
            "weights": twin.memory.weights if twin else f"{FILL_IN}: GiB that the loaded weights take",
            "kv_bytes": self.ours.get("kv_bytes", reckoned),
            "overhead": 6.5,
            "start_spike": 4,
        }


def _pairs(words: list[str], known: Mapping[str, Any]) -> Iterator[tuple[str | None, str | bool]]:
    """Flags by their long names, each with its value, or True for one without; other words have no name."""
    aliases = {alias: name for name, one in known.items() for alias in one.get("aliases", ())}
    i = 0
    while i < len(words):
        word, i = words[i], i + 1
        name, equals, value = word.partition("=")
        name = aliases.get(name, name)
        if not name.startswith("--") or name == "--":
            yield (None, word) if not word.startswith("-") else (word.lstrip("-") or word, True)
            continue
        name = name.replace("_", "-")
        kind = known.get(name, {}).get("type")
        if not equals and name.startswith("--no-") and name not in known and f"--{name[5:]}" in known:
            yield name[5:], False
        elif equals:
            yield name[2:], value
        elif kind in ("bool", "switch") or i == len(words) or (kind is None and words[i].startswith("-")):
            yield name[2:], True
        else:
            yield name[2:], words[i]
            i += 1


def _typed(value: str | bool, kind: str) -> object:
    """A value as its flag's kind; None when it is none."""
    if isinstance(value, bool):
        return value if kind in ("bool", "switch") else None
    try:
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
        if kind == "json":
            found = json.loads(value)
            return found if isinstance(found, dict) else value
    except (ValueError, RecursionError):
        return value if kind == "json" else None
    return value


def _tokens(text: str) -> int | None:
    """A length as vLLM reads it: ``262144``, ``256k`` (thousands), ``256K`` (of 1024)."""
    found = re.fullmatch(r"([0-9]{1,9})([kKmM]?)", text)
    if not found or not int(found[1]):
        return None
    return int(found[1]) * {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}[found[2]]


def _twin(repository: str) -> Recipe | None:
    """A recipe of the catalog for the same repository: what it knows of files and weights holds here too."""
    for path in sorted(recipes.RECIPES.glob("*.yaml")):
        found = recipes.entry(path)
        if isinstance(found, Recipe) and (found.model.repository or "").lower() == repository.lower():
            return found
    return None


def _name(stem: str) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    return name or "imported"


def _line(value: object) -> str:
    return " ".join(str(value).split()).replace("\0", "")[:200]


def _short(value: object) -> str:
    """For people, in one line, without what looks like a secret."""
    text = " ".join(str(value).split())
    if _SECRET_VALUE.search(text) or holds_secret("", value):
        return "(not shown: it looks like a secret)"
    return text if len(text) <= 80 else text[:77] + "..."
