"""Mutation testing: would a test fail if a line of the objective or of the loop were wrong?

    make mutation                      both
    python .ci/mutation.py pipeline    the loop alone

mutmut changes one thing at a time inside the functions of a copy of the tree and runs the tests that reach the changed function,
in a fork of a process that has imported everything. To its operators (`mutmut.mutation.mutators`: arithmetic, comparisons, signs,
numbers, strings, arguments, both arms of a conditional) come two of ours: a minimum for a maximum, and a tensor method left out.
Decorated functions and what stands outside of functions are not mutated: defaults and bounds of settings.

Exit status 1 if less than `--least` per cent of the mutants are killed. After Ctrl-C the table is that of the mutants tried so far.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from mutmut.__main__ import cli as mutmut
from mutmut.configuration import reset_config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import read_functions_from_index
from mutmut.mutation.mutators import mutation_operators
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

ROOT = Path(__file__).parents[1]
SWAPPED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
DROPPED = ("clamp", "detach", "exp", "float", "square", "where")
KILLED, UNTRIED = ("killed", "timeout"), "not checked"
"""mutmut's words for a mutant that was noticed, and for one that Ctrl-C saved; one that no test reaches has survived."""

CONFIG = """
[mutmut]
source_paths=src/
only_mutate={mutated}
do_not_mutate={left}
timeout_multiplier=3
do_not_mutate_patterns=^ *assert
pytest_add_cli_args=-pno:cacheprovider
pytest_add_cli_args_test_selection=
{tests}
"""
"""Assertions tell programmers of mistakes; their messages are nobody's result. A mutant that takes six times as long loops for ever."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is mutated, and which tests are tried on it; relative to the root."""

    mutated: str
    tests: tuple[str, ...]
    left: str = ""
    """What of `mutated` is left as it is."""


ROOMS = {
    "objective": Room(
        mutated="src/scalerl/objective/*",
        tests=tuple(
            f"tests/objective/test_{name}.py"
            for name in ("aggregations", "advantages", "critic", "gae", "length_controls", "losses", "terms")
        ),
    ),
    # A few of the 2,000 scenarios: what they do not notice, the others rarely do, and a mutant that survives costs them all.
    "pipeline": Room(
        mutated="src/scalerl/pipeline/*",
        left="src/scalerl/pipeline/simulation/*",
        tests=(
            *(f"tests/pipeline/test_{name}.py" for name in ("parts", "loop", "simulation")),
            *(f"tests/pipeline/test_seeds.py::test_whatever_happens_no_invariant_breaks[{first}]" for first in range(0, 150, 50)),
        ),
    ),
}
"""By the folder in src/scalerl."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function, and what became of it."""

    path: Path
    line: int
    change: str
    status: str


def swapped(call: cst.Call) -> Iterator[cst.Call]:
    """`x.minimum(y)` as `x.maximum(y)`, `max(a, b)` as `min(a, b)`."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    if isinstance(name, cst.Name) and name.value in SWAPPED:
        yield call.with_deep_changes(name, value=SWAPPED[name.value])


def dropped(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """`x.detach()` as `x`."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in DROPPED:
        yield call.func.value


def mutants_of(path: Path) -> Iterator[Mutant]:
    """What mutmut wrote down of the mutants of a source file, given relative to the current folder, the copy that it worked on."""
    results = SourceFileMutationData(path=path)
    results.load()
    source = path.read_text()
    for name, exit_code in results.exit_code_by_key.items():
        functions = read_functions_from_index(name, path)
        assert functions is not None, "mutmut has just written it"
        before, after = (cst.Module([function.with_changes(leading_lines=[], decorators=[])]).code.splitlines() for function in functions)
        offset = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
        function, owner = orig_function_and_class_names_from_key(name)
        line = line_of(source, function, owner=owner) + offset
        yield Mutant(path, line, f"{before[offset].strip()} -> {after[offset].strip()}", status_by_exit_code[exit_code])


def line_of(source: str, function: str, *, owner: str | None) -> int:
    """The line on which a function, or a method of the class `owner`, is defined."""
    body: Sequence[ast.stmt] = ast.parse(source).body
    if owner is not None:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner)
    return next(node.lineno for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function)


def run(root: Path, room: Room, *, jobs: int) -> list[Mutant]:
    """Try every mutant of a room's source files in a copy of `root`."""
    assert isinstance(mutation_operators, list), "mutmut 3.8 keeps its operators in a list"
    mutation_operators.extend([(cst.Call, swapped), (cst.Call, dropped)])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for part in ("src", "tests"):
            shutil.copytree(root / part, part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "pyproject.toml", folder)
        tests = "\n".join(f"    {path}" for path in room.tests)
        Path("setup.cfg").write_text(CONFIG.format(mutated=room.mutated, left=room.left, tests=tests))
        reset_config()  # It was read where mutmut was imported.
        mutmut(["run", "--max-children", str(jobs)], standalone_mode=False)
        return [mutant for path in sorted(walk_mutatable_files()) for mutant in mutants_of(path)]


def report(mutants: Sequence[Mutant], *, least: float) -> bool:
    """Print killed and total of each file and whatever survived; whether `least` per cent were killed."""
    for path in dict.fromkeys(mutant.path for mutant in mutants):
        killed = [mutant.status in KILLED for mutant in mutants if mutant.path == path]
        print(f"{sum(killed):4} / {len(killed):<4} {path}")
    num_killed = sum(mutant.status in KILLED for mutant in mutants)
    share = 100.0 * num_killed / max(len(mutants), 1)
    print(f"{num_killed:4} / {len(mutants):<4} killed, {share:.1f} %; at least {least:g} % are asked for")
    if num_untried := sum(mutant.status == UNTRIED for mutant in mutants):
        print(f"{num_untried:4} of them were not tried")
    for mutant in mutants:
        if mutant.status not in (*KILLED, UNTRIED):
            print(f"{mutant.path}:{mutant.line}: {mutant.change}  [{mutant.status}]")
    return share >= least


def main() -> int:
    """Run with the command line's settings; 0 if enough mutants were killed, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", nargs="?", choices=ROOMS, default="objective", help="what is mutated and by which tests")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tried at a time")
    parser.add_argument("--least", type=float, default=85.0, help="per cent of the mutants that must be killed")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder that holds src/, tests/ and pyproject.toml")
    parser.add_argument("--mutate", help="pattern of other source files, relative to the root")
    parser.add_argument("--tests", nargs="+", help="other tests, relative to the root")
    arguments = parser.parse_args()
    room = ROOMS[arguments.room]
    room = Room(arguments.mutate or room.mutated, tuple(arguments.tests or room.tests), room.left)
    mutants = run(arguments.root.resolve(), room, jobs=arguments.jobs)
    return 0 if report(mutants, least=arguments.least) else 1


if __name__ == "__main__":
    sys.exit(main())
