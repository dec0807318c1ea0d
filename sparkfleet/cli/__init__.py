"""The ``sparkfleet`` command: everything that needs no pyinfra run.

Each subcommand lives in the module of its own name and is imported when it is asked for, so that
``sparkfleet plan`` does not pay for what ``sparkfleet lab`` imports.
"""

from importlib import import_module
from keyword import iskeyword

import click

#: name of the subcommand -> what it does, in the words of ``sparkfleet --help``
COMMANDS = {
    "import": "A recipe of spark-vllm-docker or sparkrun as one of ours.",
    "lab": "Throw-away Sparks on this machine.",
    "lint": "Recipes checked against what their engines really accept.",
    "lock": "Which files an engine is, made from its pins; or check that the committed ones are these.",
    "patches": "State of the SM121 patch set in any site-packages directory; apply, revert.",
    "pin": "The current commit of a recipe's model, written into the recipe.",
    "plan": "What a deploy would make true on each host of an inventory.",
    "status": "The fleet at a glance, once or again and again.",
    "vocab": "The vocabularies of gpt-oss in a directory, for a control machine without internet.",
    "wheelhouse": "Every wheel of an engine in a directory, for hosts without internet.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = import_module(f"sparkfleet.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkfleet")
def main() -> None:
    """Deploy, check and understand DGX Sparks that serve language models."""
