"""Templates to the texts that land on a host."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from sparkfleet.agent.shapes import TextFile, Unit
from sparkfleet.bundle import AGENT
from sparkfleet.desired import Desired, desired
from sparkfleet.plan import CACHES, ETC, STATE, USER, HostPlan, RecipePlan

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

#: The variable by which a unit's process shows what it was started from (``sparkfleet.agent.units``).
_DIGEST = "SPARKFLEET_UNIT_DIGEST"


def desired_of(plan: HostPlan) -> Desired:
    """Everything ``plan`` wants on its host, with the texts in their final form."""
    return desired(plan, limits(), units)


def limits() -> TextFile:
    """The resource limits of the account."""
    return TextFile("/etc/security/limits.d/90-sparkfleet.conf", _render("limits.conf.j2", user=USER))


def units(plan: HostPlan) -> tuple[Unit, ...]:
    """The unit and the environment file of every recipe."""
    return tuple(_unit(plan, one) for one in plan.recipes)


def _unit(plan: HostPlan, one: RecipePlan) -> Unit:
    release = next(release for release in plan.releases if release.name == one.release)
    unit_path, env_path = f"/etc/systemd/system/{one.unit}", f"{ETC}/{one.name}.env"
    service = _render(
        "vllm.service.j2",
        recipe=one.recipe,
        unit=one.unit,
        command=one.command,
        release_name=release.name,
        release_path=release.path,
        env_path=env_path,
        user=USER,
        home=f"{STATE}/home",
        agent=AGENT,
    )
    environment = _environment(one, release.name)
    digest = _digest(service, _render("vllm.env.j2", environment=environment), one)
    files = (
        TextFile(unit_path, service),
        # Readable by root alone: systemd reads it before it gives up its rights.
        TextFile(env_path, _render("vllm.env.j2", environment=environment | {_DIGEST: digest}), 0o600),
    )
    model = one.recipe.model.name
    return Unit(one.name, one.unit, release.path, model, files, digest, one.recipe.start_timeout)


def _environment(one: RecipePlan, release: str) -> dict[str, str]:
    cache_root = f"{CACHES}/{release}"
    ours = {
        "HF_HUB_OFFLINE": "1",  # the weights are complete; nothing is to be fetched behind our back
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HOME": f"{STATE}/home",
        "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        "XDG_CACHE_HOME": cache_root,
        "VLLM_CACHE_ROOT": f"{cache_root}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache_root}/inductor",
        "TRITON_CACHE_DIR": f"{cache_root}/triton",
        "FLASHINFER_WORKSPACE_BASE": cache_root,
    }
    return ours | one.environment


def _digest(service: str, environment: str, one: RecipePlan) -> str:
    model = one.recipe.model
    weights = "".join(file.sha256 for file in model.files) or f"{model.repository}@{model.revision}"
    return hashlib.sha256(f"{service}\0{environment}\0{weights}".encode()).hexdigest()[:16]


def _render(template: str, **values: Any) -> str:
    return _jinja().get_template(template).render(**values)


@cache
def _jinja() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,
    )
    environment.filters["systemd_word"] = systemd_word
    environment.filters["environment_value"] = environment_value
    return environment


def systemd_word(text: str) -> str:
    """One word of a command line in a unit, quoted as systemd reads it (systemd.service(5), "Command lines").

    Raises ValueError for a line break.
    """
    return _quoted(text, {"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})


def environment_value(text: str) -> str:
    """A value of an environment file, quoted as systemd reads it (systemd.exec(5), EnvironmentFile=).

    Raises ValueError for a line break.
    """
    return _quoted(text, {"\\": "\\\\", '"': '\\"', "$": "\\$", "`": "\\`"})


def _quoted(text: str, escapes: dict[str, str]) -> str:
    if re.search(r"[\n\r\0]", text):
        raise ValueError(f"line break in {text!r:.60}")
    if re.fullmatch(r"[A-Za-z0-9_@+=:,./-]+", text):
        return text
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'
