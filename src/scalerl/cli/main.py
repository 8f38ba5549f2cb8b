"""The command line: `scalerl VERB ...`, one file per verb.

A verb is a module of this package that defines `app`, a Typer application. Its file name is the verb and the first line
of its docstring the help. That line is read from the source, so that `scalerl --help` imports no verb and answers at once.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import pkgutil
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from scalerl.core.errors import ScalerlError, unknown_name
from scalerl.core.text import printable

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
    """Know the ceiling before you pay for the climb: train with RL, book what it costs, and forecast where runs end."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and an exit code, never a traceback."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except ScalerlError as error:
        _leave(str(error), error.exit_code)
    except _CommandLineError as error:
        if not error.format_message():  # called without arguments: the error is the help itself
            error.show()
            sys.exit(error.exit_code)
        sentence = error.format_message().replace("Value error, ", "").rstrip(".")
        _leave(f"{sentence}; see {' '.join(['scalerl', *_verb_of(sys.argv)])} --help", error.exit_code)
    except typer.Abort:
        _leave("stopped", 130)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (error.name or _PACKAGE).startswith("scalerl"):
            raise
        _leave(f"this needs the package {error.name}, which is not installed; install it with: pip install 'scalerl[train]'", 1)
    except OSError as error:
        failed = f"{error.filename} cannot be used" if error.filename else "the output cannot be written"
        _leave(f"{failed} ({error.strerror or error})", 1)
    sys.exit(code if isinstance(code, int) else 0)


_CommandLineError: Any = typer.BadParameter.__mro__[2]
"""The base of what the parser of the command line raises; Typer does not export it by its own name."""


def _verb_of(arguments: list[str]) -> list[str]:
    """The verb in a command line, as far as there is one."""
    return [argument for argument in arguments[1:2] if argument in verbs()]


def _leave(sentence: str, code: int) -> NoReturn:
    """Say why on stderr, in one line without terminal codes from foreign files, and exit."""
    line = " ".join(printable(sentence.replace("\n", " ")).split())
    print(f"scalerl: {line}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
