"""Templates to the texts that land on a host."""

import hashlib
import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from sparkfleet.agent.shapes import TextFile, Unit
from sparkfleet.bundle import AGENT
from sparkfleet.desired import Desired, desired, guard
from sparkfleet.plan import CACHES, CUDA, ETC, STATE, USER, HostPlan, RecipePlan, ReleasePlan

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

#: The variable by which a unit's process shows what it was started from (``sparkfleet.agent.services.units``).
_DIGEST = "SPARKFLEET_UNIT_DIGEST"


def desired_of(plan: HostPlan) -> Desired:
    """Everything ``plan`` wants on its host, with the texts in their final form."""
    return desired(plan, limits(), units)


def limits() -> TextFile:
    """The resource limits of the account."""
    return TextFile("/etc/security/limits.d/90-sparkfleet.conf", _render("limits.conf.j2", user=USER))


def units(plan: HostPlan) -> tuple[Unit, ...]:
    """The unit of every recipe with its files: environment, secrets if it has any, and what its guard looks at."""
    return tuple(_unit(plan, one) for one in plan.recipes)


def picture(template: str, **values: Any) -> str:
    """An SVG of ``template``, which escapes what is put into it."""
    return _render(template, **values)


def _unit(plan: HostPlan, one: RecipePlan) -> Unit:
    release = next(release for release in plan.releases if release.name == one.release)
    unit_path, env_path, guard_path = (
        f"/etc/systemd/system/{one.unit}",
        f"{ETC}/{one.name}.env",
        f"{ETC}/{one.name}.guard",
    )
    service = _render(
        "vllm.service.j2",
        recipe=one.recipe,
        unit=one.unit,
        command=one.command,
        address=one.address,
        conflicts=one.conflicts,
        after=one.after,
        systemd=plan.systemd,
        release_name=release.name,
        release_path=release.path,
        env_path=env_path,
        secrets_path=one.secrets,
        guard_path=guard_path,
        user=USER,
        home=f"{STATE}/home",
        agent=AGENT,
    )
    content = json.dumps(asdict(guard(plan, one)), indent=1, sort_keys=True)
    guarded = TextFile(guard_path, _render("vllm.guard.j2", unit=one.unit, content=content), starts=False)
    environment = _environment(plan, one, release)
    digest = _digest(plan, one, service, _render("vllm.env.j2", environment=environment))
    files = [
        TextFile(unit_path, service),
        # Readable by root alone: systemd reads it before it gives up its rights.
        TextFile(env_path, _render("vllm.env.j2", environment=environment | {_DIGEST: digest}), 0o600),
        guarded,
    ]
    if one.secrets and plan.api_key:
        secret = _render("vllm.secrets.j2", api_key=plan.api_key.get_secret_value())
        files.append(TextFile(one.secrets, secret, 0o600))
    return Unit(
        recipe=one.name,
        name=one.unit,
        release=release.path,
        model=one.recipe.model.name,
        files=tuple(files),
        digest=digest,
        start_timeout=one.recipe.start_timeout,
        standby=not one.running,
        port=one.port,
    )


def _environment(plan: HostPlan, one: RecipePlan, release: ReleasePlan) -> dict[str, str]:
    cache_root = f"{CACHES}/{release.name}"
    # What FlashInfer, Triton and torch compile with at the first start: a unit's own PATH has no ninja, nvcc or ptxas.
    tools = [f"{release.path}/bin", f"{CUDA}/bin"] if one.gpu else [f"{release.path}/bin"]
    ours = {
        "HF_HUB_OFFLINE": "1",  # the weights are complete; nothing is to be fetched behind our back
        "HOME": f"{STATE}/home",
        "PATH": ":".join([*tools, "/usr/local/bin", "/usr/bin", "/bin"]),
        "XDG_CACHE_HOME": cache_root,
        "VLLM_CACHE_ROOT": f"{cache_root}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache_root}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{cache_root}/torch-extensions",
        "TRITON_CACHE_DIR": f"{cache_root}/triton",
    }
    if one.gpu:
        ours |= {
            "CUDA_HOME": CUDA,
            "CUDA_CACHE_PATH": f"{cache_root}/cuda",
            "CUTE_DSL_CACHE_DIR": f"{cache_root}/cute-dsl",
            "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": f"{cache_root}/flash-attention-cute-dsl",
            "FLASHINFER_WORKSPACE_BASE": cache_root,
        }
    if not plan.usage_statistics:
        ours |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return ours | one.environment


def _digest(plan: HostPlan, one: RecipePlan, *texts: str) -> str:
    model = one.recipe.model
    weights = "".join(file.sha256 for file in model.files) or f"{model.repository}@{model.revision}"
    key = _mark(plan.api_key.get_secret_value()) if plan.api_key else ""
    return hashlib.sha256("\0".join((*texts, weights, key)).encode()).hexdigest()[:16]


@cache
def _mark(secret: str) -> str:
    """Changes with ``secret`` and gives nothing of it away: a digest stands where others may read it."""
    return hashlib.scrypt(secret.encode(), salt=b"sparkfleet", n=2**14, r=8, p=1, dklen=16).hex()


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
