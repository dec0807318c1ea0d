"""Which of a machine's apt sources the lab's image may come from."""

from pathlib import Path

import pytest

from lab import mirror
from sparkfleet.errors import UserError

OURS = "http://first.example/os/"
ENTRY = "/etc/apt/sources.list.d/debian.sources:1"


def line(
    uri: str = OURS, release: str = "bookworm", component: str = "main", origin: str = "", entry: str = ENTRY
) -> str:
    return f"Packages|{uri}|{release}|{component}|{origin}|{entry}\n"


def found(*lines: str) -> list[str]:
    return [uri for uri, _ in mirror.candidates("".join(lines), "debian", "bookworm")]


def test_takes_the_distribution_and_leaves_its_updates_and_other_components() -> None:
    listed = [line(), line("http://a.example/", "bookworm-updates"), line("http://b.example/", component="contrib")]
    assert found(*listed) == [OURS]


def test_a_third_party_with_the_same_suite_and_component_is_known_by_its_origin() -> None:
    third = "http://third.example/"
    known = [line(third, origin="Third"), line(OURS, origin="Debian")]
    unknown = [line(third, origin="$(ORIGIN)"), line(OURS, origin="$(ORIGIN)")]
    assert found(*known, *unknown) == [OURS]


def test_before_the_first_update_the_usual_files_come_first() -> None:
    third = line("http://third.example/", origin="$(ORIGIN)", entry="/etc/apt/sources.list.d/third.list:1")
    assert found(third, line(origin="$(ORIGIN)")) == [OURS, "http://third.example/"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID=debian\nVERSION_CODENAME=bookworm\n", ("debian", "bookworm")),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME="jammy"\n', ("ubuntu", "jammy")),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=x\nUBUNTU_CODENAME=noble\n', ("ubuntu", "noble")),
    ],
)
def test_distribution(text: str, expected: tuple[str, str]) -> None:
    assert mirror.distribution(text) == expected


def test_another_distribution_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="this is Fedora Linux 42"):
        mirror.distribution('ID=fedora\nPRETTY_NAME="Fedora Linux 42"\n')


def test_key_of_a_deb822_stanza_and_of_a_line(tmp_path: Path) -> None:
    key = tmp_path / "key.gpg"
    key.touch()
    stanzas, lines = tmp_path / "x.sources", tmp_path / "x.list"
    stanzas.write_text(f"# a comment\n\nTypes: deb\nURIs: {OURS}\n\nTypes: deb\nURIs: {OURS}\nSigned-By: {key}\n")
    lines.write_text(f"# a comment\ndeb [arch=amd64 signed-by={key}] {OURS} bookworm main\n")
    assert mirror.signed_by(f"{stanzas}:2") == key
    assert mirror.signed_by(f"{stanzas}:1") is None
    assert mirror.signed_by(f"{lines}:2") == key
    assert mirror.signed_by(f"{tmp_path}/gone.list:1") is None


def test_a_list_of_mirrors_gives_its_first(tmp_path: Path) -> None:
    listing = tmp_path / "mirrors.txt"
    listing.write_text("# ours\nhttp://near.example/os\tpriority:1\nhttp://far.example/os\n")
    assert mirror.resolve(f"mirror+file:{listing}") == "http://near.example/os"
    assert mirror.resolve(OURS) == OURS
