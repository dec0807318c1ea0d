"""A plan in the shapes that the agent takes: orders, and the question that observes what they are about."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from sparkfleet.agent.checks.rules import PLACE
from sparkfleet.agent.releases.seal import PatchOrder
from sparkfleet.agent.shapes import (
    Account,
    AccountOrder,
    Author,
    BadDriver,
    Clause,
    Condition,
    Directory,
    DiskNeed,
    DriverOrder,
    Expectation,
    GarbageOrder,
    Glance,
    Guard,
    Hub,
    Question,
    Release,
    ReleaseState,
    RemovalOrder,
    Requirements,
    Rule,
    TextFile,
    Unit,
    Vocabularies,
    Vocabulary,
    WeightFile,
    Weights,
    WheelsOrder,
)
from sparkfleet.bundle import AGENT, agent_hash
from sparkfleet.catalog.drivers import drivers
from sparkfleet.catalog.engines import engine, uv
from sparkfleet.catalog.issues import rules
from sparkfleet.catalog.vocabularies import catalog
from sparkfleet.expectations import expectation
from sparkfleet.harmony import DIRECTORY
from sparkfleet.plan import (
    CACHES,
    ETC,
    GIB,
    LOGS,
    MODELS,
    OPT,
    RELEASES,
    STATE,
    TOOLS,
    USER,
    WHEELS,
    HostPlan,
    RecipePlan,
    ReleasePlan,
)

#: Of the machine whatever the plan: what a GB10 says of itself.
COMPUTE_CAPABILITY = "12.1"
ARCHITECTURE = "aarch64"

_DIRECTORIES = (
    Directory(OPT, "root", "root", 0o755),
    Directory(RELEASES, "root", "root", 0o755),
    Directory(TOOLS, "root", "root", 0o755),
    Directory(STATE, "root", "root", 0o755),
    Directory(MODELS, "root", "root", 0o755),
    Directory(f"{STATE}/generations", "root", "root", 0o700),
    Directory(f"{STATE}/home", USER, USER, 0o750),
    Directory(LOGS, "root", "root", 0o755),
    Directory(ETC, "root", "root", 0o755),
)


@dataclass(frozen=True)
class Desired:
    """All that should be true on one host, ready to be compared and ordered."""

    host: str
    agent: str
    requirements: Requirements
    driver: DriverOrder
    account: AccountOrder
    wheels: tuple[WheelsOrder, ...]
    releases: tuple[Release, ...]
    patches: tuple[PatchOrder, ...]
    vocab: Vocabularies
    weights: tuple[Weights, ...]
    units: tuple[Unit, ...]
    expectations: tuple[Expectation, ...]


def desired(plan: HostPlan, limits: TextFile, units: Callable[[HostPlan], tuple[Unit, ...]]) -> Desired:
    """The orders of ``plan``; ``limits`` and ``units`` bring the texts that come from templates."""
    return Desired(
        host=plan.host,
        agent=agent_hash(),
        requirements=_requirements(plan),
        driver=_driver(plan),
        account=AccountOrder(
            Account(USER, f"{STATE}/home", ("video", "render")),
            _DIRECTORIES,
            (limits,),
        ),
        wheels=tuple(_wheels(one) for one in plan.releases if one.supply.kind != "host"),
        releases=tuple(_release(release) for release in plan.releases),
        patches=tuple(PatchOrder(release.path, release.patch_set, release.assertions) for release in plan.releases),
        vocab=_vocabularies(plan.vocabularies),
        weights=tuple(_weights(plan, one) for one in plan.recipes),
        units=units(plan),
        expectations=tuple(expectation(one) for one in plan.recipes if one.running),
    )


def question(
    wanted: Desired, now: float, author: Author, adopt: bool, live: bool = False, leaving: RemovalOrder | None = None
) -> Question:
    """What the agent must look at for ``wanted``. ``adopt`` lets it settle on a host that passes preflight; ``live``:
    engines are asked what they are doing; ``leaving``: what that order would remove is told.
    """
    files = [file.path for file in wanted.account.files]
    files += [file.path for unit in wanted.units for file in unit.files]
    return Question(
        now=now,
        adopt=adopt,
        author=author,
        requirements=wanted.requirements,
        rules=rules(),
        account=wanted.account.account,
        directories=tuple(directory.path for directory in wanted.account.directories),
        files=tuple(files),
        releases=RELEASES,
        vocab=wanted.vocab,
        wheels=WHEELS,
        models=tuple(_glance(model) for model in wanted.weights),
        units=tuple(unit.name for unit in wanted.units),
        serving=tuple(replace(one, journal=(), prompts=()) for one in wanted.expectations) if live else (),
        removal=leaving,
    )


def garbage(releases: Iterable[ReleaseState]) -> GarbageOrder:
    """The order to remove ``releases``."""
    return GarbageOrder(RELEASES, CACHES, LOGS, WHEELS, tuple(one.name for one in releases))


def removal(keep: Collection[str]) -> RemovalOrder:
    """The order to take off a host what is ours, but for weights or logs if they are to be kept."""
    trees = [f"{OPT}/{name}" for name in ("releases", "tools", "vocab")]
    trees += [f"{STATE}/{name}" for name in ("wheels", "generations", "home")] + [CACHES]
    kept = tuple(tree for name, tree in (("weights", MODELS), ("logs", LOGS)) if name in keep)
    asked = tuple(tree for tree in (MODELS, LOGS) if tree not in kept)
    return RemovalOrder(AGENT, RELEASES, tuple(trees), asked, kept, (OPT, STATE, ETC, MODELS, LOGS))


def _requirements(plan: HostPlan) -> Requirements:
    releases = (DiskNeed(RELEASES, one.size, f"release {one.name}", one.name) for one in plan.releases)
    wheels = (
        DiskNeed(WHEELS, one.wheels_size, f"wheels of {one.name}", one.name)
        for one in plan.releases
        if one.supply.kind != "host"
    )
    models = (
        DiskNeed(MODELS, one.recipe.model.size, f"model {one.recipe.model.name}", one.recipe.model.name)
        for one in plan.recipes
    )
    policy = drivers()
    return Requirements(
        compute_capability=COMPUTE_CAPABILITY,
        architecture=ARCHITECTURE,
        driver_minimum=plan.driver_minimum,
        driver_minimum_of=plan.driver_minimum_of,
        driver_newest_known=policy.newest_known,
        driver_command=_driver_command(),
        drivers_bad=_bad_drivers(),
        compiles=any(engine(one.engine).gpu for one in plan.releases),
        python=plan.python,
        systemd_minimum=plan.systemd,
        memory=plan.memory,
        disk=(*wheels, *releases, *models),
        clock_skew=plan.clock_skew,
        ports=tuple(one.port for one in plan.recipes),
    )


def _driver(plan: HostPlan) -> DriverOrder:
    policy = drivers()
    return DriverOrder(
        packages=policy.packages,
        repository=policy.repository,
        minimum=plan.driver_minimum,
        bad=tuple(one.version for one in policy.known_bad),
        log=f"{LOGS}/driver.log",
    )


def _release(plan: ReleasePlan) -> Release:
    tool = uv()
    return Release(
        name=plan.name,
        path=plan.path,
        engine=plan.engine,
        digest=plan.digest,
        python=plan.python,
        lock=plan.lock,
        wheelhouse=plan.wheelhouse,
        uv=tool.version,
        uv_hashes=tool.hashes,
        log=f"{LOGS}/build-{plan.name}.log",
        tools=TOOLS,
        overlaps=plan.overlaps,
    )


def guard(plan: HostPlan, one: RecipePlan) -> Guard:
    """What must be true when the unit of a recipe starts."""
    return Guard(
        recipe=one.name,
        release=f"{RELEASES}/{one.release}",
        weights=_glance(_weights(plan, one)),
        memory=round(one.need.starting * GIB),
        arithmetic=one.need.arithmetic,
        utilization=one.utilization or 0.0,
        port=one.port,
        vocabularies=_vocabularies(one.vocabularies),
        rules=tuple(rule for rule in rules() if _is_of_the_driver(rule)),
        compute_capability=COMPUTE_CAPABILITY,
        driver_minimum=plan.driver_minimum,
        driver_minimum_of=plan.driver_minimum_of,
        driver_command=_driver_command(),
        drivers_bad=_bad_drivers(),
    )


def _is_of_the_driver(rule: Rule) -> bool:
    """Whether a rule stops a deploy for what a guard can see: GPU, driver and what is asked of them."""
    named = {clause.fact for clause in _clauses(rule.when)} | {rule.each or "lab"}
    named |= {place[1] for text in (rule.what, rule.remedy) for place in PLACE.finditer(text)}
    return rule.severity == "stop" and all(_is_seen_by_guards(fact) for fact in named)


def _is_seen_by_guards(fact: str) -> bool:
    head, _, rest = fact.partition(".")
    return head in ("each", "lab", "gpu", "driver", "kernel") or (
        head == "needs" and rest in Guard.__dataclass_fields__
    )


def _clauses(condition: Condition) -> Iterator[Clause]:
    yield from condition.clauses
    for one in condition.any:
        yield from _clauses(one)


def _driver_command() -> str:
    return f"sudo apt-get update && sudo apt-get install {' '.join(drivers().packages)}"


def _bad_drivers() -> tuple[BadDriver, ...]:
    return tuple(BadDriver(one.version, one.why) for one in drivers().known_bad)


def _vocabularies(names: tuple[str, ...]) -> Vocabularies:
    if not names:
        return Vocabularies(DIRECTORY, ())
    files = (one for one in catalog().vocabularies if one.name.removesuffix(".tiktoken") in names)
    return Vocabularies(DIRECTORY, tuple(Vocabulary(one.name, one.cache_name, one.size, one.sha256) for one in files))


def _wheels(plan: ReleasePlan) -> WheelsOrder:
    tool = uv()
    size = f", {plan.wheels_size / 1e9:.1f} GB" if plan.wheels_size else ""
    origin = f"{plan.supply}{size}"
    return WheelsOrder(plan.name, WHEELS, RELEASES, plan.size, plan.lock, tool.version, tool.hashes, origin)


def _weights(host: HostPlan, plan: RecipePlan) -> Weights:
    model = plan.recipe.model
    files = tuple(WeightFile(file.name, file.size, file.sha256) for file in model.files)
    hub = None
    if model.repository and model.revision:
        release = next(one for one in host.releases if one.name == plan.release)
        hub = Hub(model.repository, model.revision, host.hub, f"{release.path}/bin/python", USER)
    return Weights(model.name, plan.model_path, plan.model_source, files, hub)


def _glance(model: Weights) -> Glance:
    hub = model.hub
    return Glance(model.model, model.path, model.files, hub.repository if hub else "", hub.revision if hub else "")
