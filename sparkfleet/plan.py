"""What should be true on a host, worked out from its settings and the catalog. Pure: no host is asked."""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching.shapes import PatchSet
from sparkfleet.agent.releases.lock_file import parse
from sparkfleet.agent.shapes import Assertions, Overlap
from sparkfleet.agent.wire import encode
from sparkfleet.catalog.drivers import drivers
from sparkfleet.catalog.engines import UNPACKED_PER_WHEEL_BYTE, Engine, digest, engine, wheels_size
from sparkfleet.catalog.overrides import Overrides, overridden
from sparkfleet.catalog.recipes import FlagValue, Recipe, Serving, path_of, recipe
from sparkfleet.errors import UserError
from sparkfleet.harmony import environment, vocabularies
from sparkfleet.lint.check import Served, check_host
from sparkfleet.lint.findings import Unfit
from sparkfleet.memory.admission import Admission, Need, admit, utilization
from sparkfleet.patchset import for_lock
from sparkfleet.settings import Settings, settings

#: Where things are on every host.
OPT = "/opt/sparkfleet"
RELEASES = f"{OPT}/releases"
TOOLS = f"{OPT}/tools"
STATE = "/var/lib/sparkfleet"
MODELS = f"{STATE}/models"
WHEELS = f"{STATE}/wheels"
LOGS = "/var/log/sparkfleet"
CACHES = "/var/cache/sparkfleet"
ETC = "/etc/sparkfleet"
USER = "sparkfleet"

#: Where DGX OS has the CUDA toolkit.
CUDA = "/usr/local/cuda"

GIB = 1024**3


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True)


class Supply(_Plain):
    """How the wheels of a release come to the host.

    ``kind``: ``host``: they are in ``directory`` there. ``control``: in ``directory`` of the control machine, which
    serves them. ``index``: as ``control``, after they were fetched into ``directory`` (None: the cache) from the
    package index and the ``sources`` that the user gave. ``spark``: in ``directory`` of the host ``name``, which serves
    them.
    """

    kind: Literal["host", "control", "index", "spark"]
    directory: str | None
    name: str = ""
    lock: str | None = Field(default=None, repr=False, exclude=True)
    sources: dict[str, SecretStr] = Field(default={}, repr=False, exclude=True)

    def __str__(self) -> str:
        where = {"index": "the package index", "control": f"{self.directory} of this machine"}
        return where.get(self.kind, f"{self.directory} of {self.name or 'this host'}")


class ReleasePlan(_Plain):
    """A release the host should have. Sizes on disk in bytes; that of its wheels is 0 where the lock does not say."""

    name: str
    engine: str
    gpu: bool
    digest: str
    python: str
    supply: Supply
    lock: str = Field(repr=False, exclude=True)
    patches: tuple[str, ...]
    patch_set: PatchSet = Field(repr=False, exclude=True)
    overlaps: tuple[Overlap, ...] = Field(default=(), repr=False, exclude=True)
    assertions: Assertions = Field(default=Assertions(), repr=False, exclude=True)
    size: int
    wheels_size: int

    @property
    def path(self) -> str:
        """Its directory on the host."""
        return f"{RELEASES}/{self.name}"

    @property
    def wheelhouse(self) -> str:
        """The directory on the host that it is built from."""
        return self.supply.directory or WHEELS if self.supply.kind == "host" else WHEELS


class RecipePlan(_Plain):
    """A recipe the host should serve, from which release, and how.

    ``running``: it is to run; else it is laid down and waits, because it does not fit beside one that is named before
    it. ``conflicts``: units that it cannot run beside, ``after`` those of them that are named before it.
    ``address``: where the host itself reaches it. ``secrets``: the file with its API key; empty where it has none.
    """

    recipe: Recipe = Field(repr=False, exclude=True)
    name: str
    unit: str
    engine: str
    gpu: bool
    release: str
    model_path: str
    model_source: str
    command: tuple[str, ...]
    environment: dict[str, str]
    port: int
    address: str
    secrets: str
    running: bool
    vocabularies: tuple[str, ...]
    need: Need
    utilization: float | None
    conflicts: tuple[str, ...]
    after: tuple[str, ...]


class HostPlan(_Plain):
    """Everything that should be true on one host. ``memory`` is what it must have, in bytes.

    ``vocabularies``: names of those its recipes need, to be had from ``vocabularies_from`` if that is set.
    ``warnings``: what ``sparkfleet lint`` says of its recipes.
    ``hub_token`` is the file on the control machine that holds a token, never the token.
    ``notes``: what a person should know of it, one line each.
    """

    host: str
    driver_minimum: str
    driver_minimum_of: str
    driver_install: bool
    driver_reboot: bool
    python: str
    memory: int
    clock_skew: float
    vocabularies: tuple[str, ...]
    vocabularies_from: str | None
    rollback_to: str | None
    keep_releases: int
    uninstall_keeps: tuple[str, ...]
    bench_concurrency: tuple[int, ...]
    warnings: tuple[str, ...]
    models_from: str | None
    hub: str | None
    hub_token: str | None
    systemd: int
    usage_statistics: bool
    releases: tuple[ReleasePlan, ...]
    recipes: tuple[RecipePlan, ...]
    notes: tuple[str, ...]
    api_key: SecretStr | None = Field(exclude=True)


def plan_host(host: str, data: Mapping[str, object]) -> HostPlan:
    """The plan of one host. Raises UserError, naming the host, for whatever its data asks that cannot be."""
    chosen = settings(host, data)
    try:
        if twice := [name for name, times in Counter(chosen.recipes).items() if times > 1]:
            raise UserError(f"recipes: {', '.join(twice)} is named twice.")
        recipes = _recipes(chosen)
        wanted = {one.name: _engine_for(chosen, one) for one in recipes}
        needs = [need_of(one, wanted[one.name]) for one in recipes]
        admission = admit(needs, chosen.memory_total, chosen.os_reserve)
        warnings = _lint(host, chosen, recipes, wanted, admission)
        api_key = _api_key(chosen)
        supply = _supply(host, chosen)
        releases = {name: _release(chosen, one, supply) for name, one in wanted.items()}
        environments = {one.name: environment(one, wanted[one.name]) for one in recipes}
    except Unfit:
        raise
    except UserError as error:
        raise UserError(f"{host}: {error}") from None
    hub_token = os.path.expanduser(chosen.hub_token) if chosen.hub_token else None
    if hub_token and not Path(hub_token).is_file():
        raise UserError(f"{host}: hub_token: {hub_token} is no file on this machine.")
    driver_minimum, driver_minimum_of = _driver_minimum((*recipes, *wanted.values()))
    return HostPlan(
        host=host,
        driver_minimum=driver_minimum,
        driver_minimum_of=driver_minimum_of,
        driver_install=chosen.driver_policy == "install",
        driver_reboot=chosen.driver_reboot,
        python=chosen.python,
        memory=round((admission.largest + chosen.os_reserve) * GIB),
        clock_skew=chosen.clock_skew,
        vocabularies=tuple(sorted({name for one in recipes for name in vocabularies(one, wanted[one.name])})),
        vocabularies_from=chosen.vocabularies,
        rollback_to=chosen.rollback_to,
        keep_releases=chosen.keep_releases,
        uninstall_keeps=tuple(chosen.uninstall_keeps),
        bench_concurrency=tuple(sorted(set(chosen.bench_concurrency))),
        warnings=warnings,
        models_from=chosen.models_from if chosen.models_from != host else None,
        hub=chosen.hub.rstrip("/") if chosen.hub else None,
        hub_token=hub_token,
        systemd=chosen.systemd,
        usage_statistics=chosen.usage_statistics,
        releases=tuple({release.name: release for release in releases.values()}.values()),
        recipes=tuple(
            _recipe(chosen, one, wanted[one.name], releases[one.name], environments[one.name], admission)
            for one in recipes
        ),
        notes=admission.notes,
        api_key=api_key,
    )


def _lint(
    host: str, chosen: Settings, recipes: Iterable[Recipe], engines: Mapping[str, Engine], admission: Admission
) -> tuple[str, ...]:
    """What ``sparkfleet lint`` warns of. Raises Unfit with the errors that it finds."""
    own, none = _own(chosen), Overrides()
    served = [
        Served(one, path_of(one.name, own), engines[one.name], chosen.recipe_overrides.get(one.name, none))
        for one in recipes
    ]
    findings = check_host(served, api_key=bool(chosen.api_key_file), apart=admission.conflicts)
    if errors := [one for one in findings if one.counts]:
        raise Unfit(host, errors)
    return tuple(str(one) for one in findings if not one.waived)


def _own(chosen: Settings) -> Path | None:
    return Path(chosen.recipe_directory) if chosen.recipe_directory else None


def _recipes(chosen: Settings) -> list[Recipe]:
    own = _own(chosen)
    if own and not own.is_dir():
        raise UserError(f"recipe_directory: {own} is no directory on this machine.")
    for name in chosen.recipe_overrides:
        path_of(name, own)  # a misspelt name would be without effect
    found = [recipe(name, own) for name in chosen.recipes]
    _check_models(found)
    return [
        overridden(one, chosen.recipe_overrides[one.name]) if one.name in chosen.recipe_overrides else one
        for one in found
    ]


def _check_models(wanted: Iterable[Recipe]) -> None:
    """Raises UserError when two recipes mean different files by one model: they have one directory on the host."""
    first: dict[str, Recipe] = {}
    for one in wanted:
        other = first.setdefault(one.model.name, one)
        if _bytes_of(one) != _bytes_of(other):
            raise UserError(
                f"recipes: {other.name} and {one.name} both call their model {one.model.name}, and mean other files or "
                f"another revision by it. Give the model of one of them another `name`, or the same revision."
            )


def _bytes_of(wanted: Recipe) -> tuple[object, ...]:
    model = wanted.model
    return model.repository, model.revision, frozenset(model.files)


def check_suppliers(plans: Iterable[HostPlan], known: Collection[str]) -> None:
    """Raises UserError, naming the hosts, when wheels are to come from a Spark that the inventory does not have."""
    for plan in plans:
        for name in {one.supply.name for one in plan.releases} - {"", *known}:
            raise UserError(
                f"{plan.host}: wheelhouse_from: {name!r} is neither 'index', 'control' or 'host' nor a host of the "
                f"inventory. It has: {', '.join(known)}."
            )


def address(name: str, data: Mapping[str, object]) -> str:
    """Where pyinfra connects to for the host ``name`` with this data."""
    host, port = str(data.get("ssh_hostname") or name).lower(), str(data.get("ssh_port") or 22)
    return host if port == "22" else f"{host} port {port}"


def check_addresses(plans: Iterable[HostPlan], inventory: Mapping[str, Mapping[str, object]]) -> None:
    """Raises UserError, naming the hosts, when names with one address are to be different things.

    ``inventory``: the data of each host.
    """
    at: dict[str, list[HostPlan]] = {}
    for plan in plans:
        at.setdefault(address(plan.host, inventory[plan.host]), []).append(plan)
    troubles = [
        f"{', '.join(plan.host for plan in found)}: these names have one address, {where}, and different plans: each "
        f"deploy would undo the other's. Leave one of them in the inventory, or give each its own machine's address."
        for where, found in at.items()
        if any(plan.model_copy(update={"host": found[0].host}) != found[0] for plan in found)
    ]
    if troubles:
        raise UserError("\n".join(troubles))


def _supply(host: str, chosen: Settings) -> Supply:
    start = chosen.wheels_from
    if start in ("host", host):  # said for a whole group, it means its own directory to the one that has it
        return Supply(kind="host", directory=chosen.wheelhouse)
    if start in ("index", "control"):
        kind: Literal["index", "control"] = "index" if start == "index" else "control"
        return Supply(kind=kind, directory=chosen.wheelhouse, lock=chosen.lock, sources=chosen.sources)
    return Supply(kind="spark", directory=chosen.wheelhouse, name=start)


def _driver_minimum(wanted: Iterable[Recipe | Engine]) -> tuple[str, str]:
    """The newest driver that the policy, one of the recipes or one of the engines asks for, and which of them it is."""
    asked = [(one.driver_minimum, f"for {one.name}") for one in wanted if one.driver_minimum]
    return max([(drivers().minimum, "the policy"), *asked], key=lambda one: Version(one[0]))


def _engine_for(chosen: Settings, wanted: Recipe) -> Engine:
    name = chosen.engine or wanted.engine_names[0]
    found = engine(name)
    wanted.on(name)
    if chosen.python not in found.python:
        raise UserError(f"python {chosen.python!r}: engine {name} is for {', '.join(found.python)}.")
    return found


def _release(chosen: Settings, wanted: Engine, supply: Supply) -> ReleasePlan:
    lock = _lock(chosen, wanted)
    patch_set = for_lock(wanted, lock)
    mark = digest(lock, encode(patch_set), chosen.python, wanted.overlaps)
    return ReleasePlan(
        name=f"{wanted.name}-{mark}",
        engine=wanted.name,
        gpu=wanted.gpu,
        digest=mark,
        python=chosen.python,
        supply=supply,
        lock=lock,
        patches=wanted.patches,
        patch_set=patch_set,
        overlaps=tuple(one.order for one in wanted.overlaps),
        assertions=wanted.assertions.order,
        size=_size(wanted, lock),
        wheels_size=wheels_size(lock),
    )


def _size(wanted: Engine, lock: str) -> int:
    """Bytes a release takes. Where nobody has measured it: what its wheels take, as often as it is at the most."""
    return round(wanted.unpacked * 1e9) if wanted.unpacked else UNPACKED_PER_WHEEL_BYTE * wheels_size(lock)


def _lock(chosen: Settings, wanted: Engine) -> str:
    path = Path(chosen.lock) if chosen.lock else wanted.lock
    if not chosen.lock and not wanted.lock.exists():
        needs = " ".join(f"{one.distribution}: {one.what}." for one in wanted.sources)
        raise UserError(
            f"engine {wanted.name}: it has no lock, so nobody can say what would be installed. Make it with "
            f"`{wanted.lock_command}`.{' You have to give: ' if needs else ''}{needs}"
        )
    if wanted.lock_is_completed_by_wheelhouse and not chosen.lock:
        raise UserError(
            f"engine {wanted.name}: `lock` must name the requirements.lock of its wheelhouse, a file on this machine."
        )
    try:
        text = path.read_text(encoding="utf-8")
        held = {pin.name: pin.version for pin in parse(text)}
        if not held:
            raise HostError("lock: no line pins a distribution.")
        if "vllm" in wanted.pins and held.get("vllm") != wanted.pins["vllm"]:
            # what the catalog knows of the engine, its flags and its patches are of that release and no other
            raise HostError(f"lock: expected vllm=={wanted.pins['vllm']}, found {held.get('vllm', 'none')}.")
        return text
    except HostError as error:
        raise UserError(f"engine {wanted.name}: {path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"engine {wanted.name}: its lock {path} cannot be read ({error}).") from None


def need_of(wanted: Recipe, on: Engine) -> Need:
    """What a recipe takes on an engine."""
    memory = wanted.memory
    return Need(wanted.name, memory.weights, memory.kv, memory.overhead, memory.start_spike, on.gpu)


def _api_key(chosen: Settings) -> SecretStr | None:
    return None if chosen.api_key_file is None else _key_in(Path(os.path.expanduser(chosen.api_key_file)))


def _key_in(path: Path) -> SecretStr:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise UserError(f"api_key_file: {path} cannot be read ({reason}).") from None
    if not lines or not re.fullmatch(r"[!-~]{16,}", lines[0]):
        raise UserError(
            f"api_key_file: {path}: expected a first line of 16 or more letters, digits and signs without spaces, "
            f"like that of `openssl rand -hex 32`."
        )
    return SecretStr(lines[0])


def _recipe(
    chosen: Settings,
    wanted: Recipe,
    on: Engine,
    release: ReleasePlan,
    variables: dict[str, str],
    admission: Admission,
) -> RecipePlan:
    model_path = f"{MODELS}/{wanted.model.name}"
    serving = wanted.on(on.name)
    need = need_of(wanted, on)
    share = utilization(need, chosen.memory_total) if on.gpu else None
    conflicts = admission.conflicts[wanted.name]
    before = chosen.recipes[: chosen.recipes.index(wanted.name)]
    return RecipePlan(
        recipe=wanted,
        name=wanted.name,
        engine=release.engine,
        gpu=release.gpu,
        unit=unit_of(wanted.name),
        release=release.name,
        model_path=model_path,
        model_source=f"{chosen.models}/{wanted.model.name}",
        command=_command(wanted, serving, release, model_path, share),
        environment=variables,
        port=wanted.port,
        address=_reached_at(wanted.bind),
        secrets=f"{ETC}/{wanted.name}.secrets" if chosen.api_key_file else "",
        running=wanted.name in admission.running,
        vocabularies=vocabularies(wanted, on),
        need=need,
        utilization=share,
        conflicts=tuple(unit_of(name) for name in conflicts),
        after=tuple(unit_of(name) for name in conflicts if name in before),
    )


def _reached_at(bind: str) -> str:
    """An address of the host on which what listens on ``bind`` answers."""
    address = ip_address(bind)
    if not address.is_unspecified:
        return bind
    return "127.0.0.1" if address.version == 4 else "::1"


def unit_of(recipe: str) -> str:
    """The name of a recipe's unit."""
    return f"vllm-{recipe}.service"


def _command(
    wanted: Recipe, serving: Serving, release: ReleasePlan, model_path: str, share: float | None
) -> tuple[str, ...]:
    fixed: dict[str, FlagValue] = {"served-model-name": wanted.served_as, "host": wanted.bind, "port": wanted.port}
    fixed |= {"gpu-memory-utilization": share} if share else {}
    flags = [_flag(name, value) for name, value in (fixed | serving.flags).items()]
    return (f"{release.path}/bin/vllm", "serve", model_path, *flags)


def _flag(name: str, value: FlagValue) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, dict):
        return f"--{name}={json.dumps(value, separators=(',', ':'))}"
    return f"--{name}={value}"
