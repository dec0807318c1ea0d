"""What an engine knows is read from its source: a small vLLM in which every shape that the real ones have occurs."""

import json
from pathlib import Path

import pytest

from sparkfleet.catalog import engines
from sparkfleet.errors import UserError
from sparkfleet.knowledge import knowledge

ENVS = """
from typing import TYPE_CHECKING, Any, Literal
if TYPE_CHECKING:
    VLLM_PORT: int | None = None
    VLLM_FAST: bool = False
    VLLM_RATIO: float = 0.5
    VLLM_LEVEL: Literal["low", "high"] = "low"
    VLLM_PLUGINS: list[str] | None = None
    VLLM_WORD: bool = False
    VLLM_ONE: bool = False
environment_variables: dict[str, Any] = {
    "VLLM_PORT": get_vllm_port,
    "VLLM_FAST": lambda: bool(int(os.getenv("VLLM_FAST", "0"))),
    "VLLM_RATIO": lambda: float(os.getenv("VLLM_RATIO", "0.5")),
    "VLLM_LEVEL": env_with_choices("VLLM_LEVEL", "low", ["low", "high"], case_sensitive=False),
    "VLLM_PLUGINS": lambda: os.getenv("VLLM_PLUGINS"),
    "VLLM_OLD": deprecated_env("VLLM_OLD", "v9", "Use --new.", env_with_choices("VLLM_OLD", None, ["b", "a"])),
    "VLLM_TOOLS": env_set_with_choices("VLLM_TOOLS", default=[], choices=["x", "y"]),
    "VLLM_LATE": env_with_choices("VLLM_LATE", None, lambda: later()),
    "VLLM_WORD": lambda: os.getenv("VLLM_WORD", "False").strip().lower() in ("true", "1"),
    "VLLM_ONE": lambda: os.environ.get("VLLM_ONE", "0") == "1",
    "MAX_JOBS": lambda: os.getenv("MAX_JOBS", None),
    "UNDECLARED": lambda: int(os.getenv("UNDECLARED", "1")),
}
"""
CONFIG = """
from typing import TYPE_CHECKING, Any, Literal
from vllm.registry import Backend
if TYPE_CHECKING:
    from vllm.quant import Methods
else:
    Methods = Any
UNWANTED: Final = 32
Kind = Literal["b", "a"]
Both = Literal[Kind, "c"]

@config
class Nested:
    x: int = 0

@config
class Base:
    size: int = 1

@config
class ModelConfig(Base):
    kind: Kind = "a"
    both: "Both | None" = None
    method: Methods | str | None = None
    backend: Backend | None = None
    nested: Nested = None
    names: list[str] | None = None
    ranks: list[Literal[16, 8, 32]] | None = None
    extra: dict[str, Any] | None = None
    eager: bool = False
    token: bool | str | None = None
    share: float = 0.9
    traces: list[Kind] | None = None
"""
ARGS = """
import argparse
from vllm.config.model import UNWANTED, ModelConfig

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kw = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        if not helping:
            group.add_argument("--kind", "-k", **kw["kind"])
        for_backend = kw["backend"]
        loose = kw["both"]
        loose["type"] = lambda s: s.lower().replace("-", "_")
        kw["traces"]["choices"] += ["a,b"]
        kw["ranks"]["choices"].remove(UNWANTED)
        kw["nested"]["type"] = optional_type(json.loads)
        group.add_argument("--both", **loose)
        group.add_argument("--method", **kw["method"])
        group.add_argument("--backend", **for_backend)
        group.add_argument("--nested", "-n", **kw["nested"])
        group.add_argument("--names", **kw["names"])
        group.add_argument("--ranks", **kw["ranks"])
        group.add_argument("--extra", **kw["extra"])
        group.add_argument("--eager", **{**kw["eager"], "default": None})
        group.add_argument("--token", **kw["token"])
        group.add_argument("--share", **kw["share"])
        group.add_argument("--size", **kw["size"])
        group.add_argument("--traces", **kw["traces"])
        group.add_argument("--old", action="store_true", deprecated=True)
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--log", action=argparse.BooleanOptionalAction)
        return parser
"""
FRONT = """
from vllm.config.model import Kind
from vllm.engine.arg_utils import AsyncEngineArgs

@config
class BaseFrontendArgs:
    api_key: list[str] | None = None
    middleware: list[str] = None

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["middleware"]["action"] = "append"
        del frontend_kwargs["middleware"]["nargs"]
        return frontend_kwargs

    @classmethod
    def add_cli_args(cls, parser):
        frontend_kwargs = get_kwargs(cls)
        frontend_kwargs = cls._customize_cli_kwargs(frontend_kwargs)
        for key, value in frontend_kwargs.items():
            parser.add_argument(f"--{key}", **value)
        return parser

@config
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    origins: list[str] = None

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        return frontend_kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--count", "-asc", type=int)
    parser.add_argument("--mode", choices=["y", "x"])
    parser.add_argument("--device", choices=["cpu"] + ([here] if here else []))
    parser.add_argument("--level", choices=get_args(Kind))
    parser = FrontendArgs.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
"""
FILES = {
    "envs.py": ENVS,
    "config/__init__.py": "",
    "config/model.py": CONFIG,
    "registry.py": "class Backend(Enum, metaclass=M):\n    FLASH = 'x.y'\n    CUSTOM = None\n    _hidden = 1\n",
    "quant.py": "Methods = Literal['fp8', 'awq']\n",
    "engine/__init__.py": "",
    "engine/arg_utils.py": ARGS,
    "entrypoints/cli/serve.py": "from vllm.entrypoints.somewhere import make_arg_parser\n",
    "entrypoints/somewhere.py": FRONT,
    "reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {'qwen3': ('m', 'C'), 'deepseek_r1': ('m', 'C')}\n",
    "tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {'hermes': ('m', 'C')}\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_environment(site: Path) -> None:
    known = json.loads(knowledge(site, "vllm-0", "vllm.whl", "0"))["environment"]
    assert known == {
        "VLLM_PORT": {"type": "int"},
        "VLLM_FAST": {"type": "bool"},
        "VLLM_RATIO": {"type": "float"},
        "VLLM_LEVEL": {"type": "str", "choices": ["high", "low"], "case": "any"},
        "VLLM_PLUGINS": {"type": "str"},
        "VLLM_OLD": {"type": None, "choices": ["a", "b"], "deprecated": "Use --new."},
        "VLLM_TOOLS": {"type": None, "choices": ["x", "y"], "many": True},
        "VLLM_LATE": {"type": None},
        "VLLM_WORD": {"type": "bool", "true": ["1", "true"]},
        "VLLM_ONE": {"type": "bool", "true": ["1"]},
        "MAX_JOBS": {"type": None},
        "UNDECLARED": {"type": "int"},
    }


def test_flags(site: Path) -> None:
    known = json.loads(knowledge(site, "vllm-0", "vllm.whl", "0"))["flags"]
    assert known == {
        "--count": {"type": "int", "aliases": ["-asc"]},
        "--mode": {"type": "str", "choices": ["x", "y"]},
        "--device": {"type": "str", "choices": ["cpu"], "open": True},
        "--level": {"type": "str", "choices": ["a", "b"]},
        "--api-key": {"type": "str", "many": True},
        "--middleware": {"type": "str", "many": True},
        "--port": {"type": "int"},
        "--origins": {"type": "json"},
        "--kind": {"type": "str", "choices": ["a", "b"], "aliases": ["-k"]},
        "--both": {"type": "str", "choices": ["a", "b", "c"], "loose": True},
        "--method": {"type": "str", "choices": ["awq", "fp8"], "open": True},
        "--backend": {"type": "str", "choices": ["CUSTOM", "FLASH"], "loose": True},
        "--nested": {"type": "json", "keys": ["x"], "aliases": ["-n"]},
        "--names": {"type": "str", "many": True},
        "--ranks": {"type": "int", "choices": [8, 16], "many": True},
        "--extra": {"type": "json"},
        "--eager": {"type": "bool"},
        "--token": {"type": "str", "open": True},
        "--share": {"type": "float"},
        "--size": {"type": "int"},
        "--traces": {"type": "str", "choices": ["a", "b"], "many": True, "open": True},
        "--old": {"type": "switch", "deprecated": True},
        "--log": {"type": "bool"},
    }


def test_parsers(site: Path) -> None:
    known = json.loads(knowledge(site, "vllm-0", "vllm.whl", "0"))["parsers"]
    assert known == {"reasoning": ["deepseek_r1", "qwen3"], "tool": ["hermes"]}


def test_the_same_wheel_gives_the_same_bytes(site: Path) -> None:
    assert knowledge(site, "vllm-0", "vllm.whl", "0") == knowledge(site, "vllm-0", "vllm.whl", "0")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("envs.py", "x = 1\n", "expected a dictionary `environment_variables`"),
        ("envs.py", "environment_variables = {", "not Python as this Python reads it"),
        ("entrypoints/cli/serve.py", "x = 1\n", "expected a function make_arg_parser"),
        ("tool_parsers/__init__.py", "x = 1\n", "expected a dictionary `_TOOL_PARSERS_TO_REGISTER`"),
        ("config/model.py", "class ModelConfig:\n    pass\n", "ModelConfig has no field kind"),
    ],
)
def test_a_vllm_of_another_shape_is_refused_in_words(site: Path, name: str, text: str, said: str) -> None:
    (site / "vllm" / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        knowledge(site, "vllm-0", "vllm.whl", "0")


COMMITTED = sorted(engines.ENGINES.glob("*.knowledge.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_committed_knowledge_is_of_the_wheel_in_the_lock(path: Path) -> None:
    known = json.loads(path.read_text(encoding="utf-8"))
    engine = engines.engine(known["engine"])
    assert engine.knowledge == path
    assert known["wheel"]["sha256"] in engine.lock.read_text(encoding="utf-8")
    assert known["flags"]["--port"]["type"] == "int" and known["environment"]["VLLM_PORT"]["type"] == "int"
    assert "marlin" in known["flags"]["--moe-backend"]["choices"]
    assert "qwen3" in known["parsers"]["reasoning"] and "hermes" in known["parsers"]["tool"]


def test_what_the_write_ups_set_is_known_where_it_works_and_not_where_it_is_gone() -> None:
    def of(name: str) -> dict[str, dict[str, dict[str, object]]]:
        known: dict[str, dict[str, dict[str, object]]] = json.loads(engines.engine(name).knowledge.read_text())
        return known

    variable = "VLLM_NVFP4_GEMM_BACKEND"
    assert "flashinfer-b12x" not in str(of("vllm-0.20.1")["environment"][variable]["choices"])
    assert of("vllm-0.23.0")["environment"][variable]["deprecated"] == "Use --linear-backend."
    assert variable not in of("vllm-0.33.0")["environment"]
    assert all("VLLM_MXFP4_BACKEND" not in json.loads(path.read_text())["environment"] for path in COMMITTED)
    assert "--linear-backend" not in of("vllm-0.20.1")["flags"]
    assert "flashinfer_b12x" in str(of("vllm-0.33.0")["flags"]["--linear-backend"]["choices"])
