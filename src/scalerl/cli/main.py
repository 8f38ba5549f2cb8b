"""The command line: `scalerl VERB ...`, one file per verb.

A verb is a module of this package that defines `app`, a Typer application. Its file name is the verb and the first line
of its docstring the help. That line is read from the source, so that `scalerl --help` imports no verb and answers at once.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from scalerl.core.errors import ScalerlError, unknown_name

_PACKAGE = "scalerl.cli"
_FOLDER = Path(__file__).parent


def verbs() -> list[str]:
    """The verbs, sorted: every public module of this package that is not this one."""
    return sorted(info.name for info in pkgutil.iter_modules([str(_FOLDER)]) if not info.name.startswith("_") and info.name != "main")


class _Verb(TyperCommand):
    """A verb that can be listed without being imported: the module is loaded when its arguments are parsed."""

    def __init__(self, verb: str) -> None:
        docstring = ast.get_docstring(ast.parse((_FOLDER / f"{verb}.py").read_text(encoding="utf-8"))) or ""
        super().__init__(verb, help=docstring.partition("\n")[0])
        self.module = f"{_PACKAGE}.{verb}"

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = typer.main.get_command(importlib.import_module(self.module).app)
        return command.make_context(info_name, args, parent=parent, **extra)


class _Verbs(TyperGroup):
    """The group of the verbs that lie in this folder."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the base class passes it)
        return verbs()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in verbs():
            raise unknown_name("verb", cmd_name, verbs())
        return _Verb(cmd_name)


def _print_version(asked: bool) -> None:
    if asked:
        print(importlib.metadata.version("scalerl"))
        raise typer.Exit


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def scalerl(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Know the ceiling before you pay for the climb: fit, forecast and compare RL training runs."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and an exit code, never a traceback."""
    try:
        app()
    except ScalerlError as error:
        print(f"scalerl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
