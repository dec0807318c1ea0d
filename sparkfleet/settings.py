"""What a user may set for a host, in ``group_data/`` or in the inventory, validated before any host is touched."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from sparkfleet.agent.secrecy import holds_secret, is_secret
from sparkfleet.catalog.overrides import DecodeValues, MemoryValues, Overrides
from sparkfleet.errors import UserError

#: Data that pyinfra itself reads from an inventory: connection details and global arguments (``_sudo`` ...).
_PYINFRA = ("ssh_", "_", "docker_", "podman_", "vagrant_", "pyinfra_")


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute():
        raise ValueError("expected an absolute path")
    return _plain(path)


def _plain(path: str) -> str:
    if not path.isprintable():
        raise ValueError("expected a path without line breaks and other control characters")
    return path


def _file(path: str) -> str:
    if is_secret("", path) or re.fullmatch(r"[A-Za-z0-9_+=-]{32,}", path):
        raise ValueError("expected the path of a file, and this looks like the secret itself")
    return _plain(path)


HostPath = Annotated[str, AfterValidator(_absolute)]
LocalPath = Annotated[str, AfterValidator(_plain)]
SecretFile = Annotated[str, AfterValidator(_file)]

#: Settings whose values are not shown: an address may hold a password, and some give the secret for its file.
_NOT_SHOWN = ("sources", "api_key_file", "hub_token")


class Settings(BaseModel):
    """Every setting; defaults and their reasons stand in ``group_data/all.py``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    settings_version: Literal[1]
    recipes: list[str] = Field(description="a list of names of recipes, as in ['tiny-llama']; [] for none")
    recipe_directory: LocalPath | None = Field(description="directory on the control machine, or None for recipes/")
    recipe_overrides: dict[str, Overrides] = Field(
        description="single keys of recipes, as in {'gpt-oss-120b': {'port': 8001, 'flags': {'max-num-seqs': 4}}}"
    )
    engine: str | None = Field(description="an engine of the catalog, or None for the one each recipe prefers")
    python: str = Field(pattern=r"^3\.\d+$", description="minor version of CPython, quoted")
    wheelhouse: HostPath | None = Field(description="absolute path of a directory with the engine's wheels, or None")
    wheelhouse_from: Annotated[str, Field(min_length=1)] | None = Field(
        description="'index', 'control', 'host' or the name of a Spark that has the wheelhouse; or None"
    )
    sources: dict[str, SecretStr] = Field(
        description="a dictionary with an index's address or a wheel's path by distribution, as in {'torch': '...'}"
    )
    lock: LocalPath | None = Field(description="file on the control machine that replaces the engine's lock, or None")
    models: HostPath = Field(description="directory on the host with a directory for each model")
    vocabularies: LocalPath | None = Field(
        description="file or directory on the control machine with vocabularies, or None"
    )
    models_from: Annotated[str, Field(min_length=1)] | None = Field(
        description="name of a Spark that has them, or None"
    )
    hub: str | None = Field(
        pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$",
        description="address of a hub or mirror, or None for the client's",
    )
    hub_token: SecretFile | None = Field(
        description="file on the control machine that holds a token of the hub, or None"
    )
    driver_policy: Literal["check", "install"] = Field(description="'check' or 'install'")
    driver_reboot: bool = Field(description="True or False: whether a host is rebooted for a driver just installed")
    memory_total: float = Field(
        gt=0, le=4096, description="GiB, the MemTotal of /proc/meminfo that recipes are fitted in"
    )
    os_reserve: float = Field(ge=0, le=64, description="GiB of memory that recipes leave alone")
    rollback_to: str | None = Field(description="a release that served, or the beginning of its name; None: the last")
    report: LocalPath | None = Field(description="file on the control machine that status writes its page to, or None")
    keep_releases: int = Field(ge=0, description="a number of releases")
    uninstall_keeps: list[Literal["weights", "logs"]] = Field(description="a list of 'weights' and 'logs', or []")
    bench_concurrency: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        min_length=1, description="a list of numbers of clients, as in [1, 4, 16]"
    )
    deep: bool = Field(description="True or False, for tasks/verify.py")
    api_key_file: SecretFile | None = Field(
        description="file on the control machine whose first line is the key, or None"
    )
    usage_statistics: bool = Field(description="True or False")
    systemd: int = Field(ge=252, description="version of systemd that units are written for; 252 or newer")
    clock_skew: float = Field(gt=0, description="seconds")

    @property
    def wheels_from(self) -> str:
        """``wheelhouse_from``; when not said, the index, or a directory on each host if one is named."""
        return self.wheelhouse_from or ("host" if self.wheelhouse else "index")

    @model_validator(mode="after")
    def _has_a_directory(self) -> "Settings":
        if self.wheels_from != "index" and not self.wheelhouse:
            raise ValueError(
                f"wheelhouse_from is {self.wheelhouse_from!r}, and `wheelhouse` does not say which directory"
            )
        return self


def settings(host: str, data: Mapping[str, object]) -> Settings:
    """The settings of ``host`` from its inventory data.

    Raises UserError naming host, key, the value found and what is allowed.
    """
    if "settings_version" not in data:
        raise UserError(
            f"{host}: group_data/all.py was not read, so there are no settings. pyinfra looks for group_data where it "
            f"is run: change to the directory that holds deploy.py and run it there (or pass --chdir to pyinfra)."
        )
    ours = {key: value for key, value in data.items() if not key.startswith(_PYINFRA)}
    try:
        return Settings.model_validate(ours)
    except ValidationError as error:
        raise UserError("\n".join(_finding(host, one) for one in error.errors())) from None


def _finding(host: str, error: ErrorDetails) -> str:
    if not error["loc"]:
        return f"{host}: {error['msg'].removeprefix('Value error, ')}"
    key = str(error["loc"][0])
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) > 1:
        return f"{host}: {where}: {_not_overridable(error['loc'])}"
    if error["type"] == "extra_forbidden":
        near = get_close_matches(key, Settings.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(Settings.model_fields))}"
        return f"{host}: {key}: unknown setting; {hint}"
    if error["type"] == "missing":
        return f"{host}: {key}: missing; it is set in group_data/all.py"
    wanted = Settings.model_fields[key].description or error["msg"]
    if error["input"] is None:
        return f"{host}: {where}: not said; wanted: {wanted}"
    credentials = key == "hub" and "@" in str(error["input"])
    hidden = key in _NOT_SHOWN or credentials or holds_secret(str(error["loc"][-1]), error["input"])
    found = "" if hidden else f" found {error['input']!r:.80};"
    return f"{host}: {where}: {error['msg'].removeprefix('Value error, ')};{found} wanted: {wanted}"


def _not_overridable(loc: tuple[int | str, ...]) -> str:
    allowed: type[BaseModel] = Overrides
    if len(loc) > 3:
        allowed = MemoryValues if loc[2] == "memory" else DecodeValues
    near = get_close_matches(str(loc[-1]), allowed.model_fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(allowed.model_fields))}"
    return f"not a key that a host may change in a recipe; {hint}"
