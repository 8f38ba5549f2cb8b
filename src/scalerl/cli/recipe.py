"""List recipes, show one, tell what two differ in, find the neighbours of one, or translate those of other libraries."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from scalerl.core.text import printable
from scalerl.core.units import counted
from scalerl.recipes import Recipe, changes, ingredient_layers, recipe_names, resolve, scale_names
from scalerl.recipes.foreign import Line, Translation, from_trl, from_verl
from scalerl.recipes.load import DEFAULT_SCALE, takes_scale
from scalerl.recipes.neighbours import Neighbour, neighbours
from scalerl.recipes.tree import LABELS, show

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

RecipeArgument = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A recipe of the catalogue, or a TOML file.")]
ScaleOption = Annotated[
    str | None,
    typer.Option(metavar="NAME|FILE", help=f"What fills in model, task, lengths, batch and budget; {DEFAULT_SCALE} if left out."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="One setting on top; repeat for more.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Their configuration: JSON, YAML, or text with key=value words.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


@app.command("list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the catalogue and the scales."""
    recipes = {name: str(ingredient_layers(name)[-1].tree.get("about", "")) for name in recipe_names()}
    if as_json:
        print(json.dumps({"recipes": recipes, "scales": scale_names()}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    table.add_column("about")
    for name, about in recipes.items():
        table.add_row(_printable(name), _printable(about))
    console = Console(markup=False)
    console.print(table)
    console.print(f"\nscales: {_printable(', '.join(scale_names()))} (default {DEFAULT_SCALE})", highlight=False)


@app.command("show")
def show_recipe(recipe: RecipeArgument, scale: ScaleOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Print a recipe with every setting spelled out, as a TOML file that can be edited and run."""
    resolved = resolve(recipe, scale=scale, overrides=overrides or [])
    if as_json:
        print(json.dumps({"hash": resolved.hash, "recipe": resolved.tree()}, indent=2))
        return
    print(f"# {resolved.hash}: {_batch_in_words(resolved)}")
    print(resolved.to_toml(), end="")


@app.command("diff")
def diff_recipes(
    left: RecipeArgument,
    right: RecipeArgument,
    scale: ScaleOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what makes the second recipe of the first, setting by setting."""
    # A complete file beside a recipe on a scale is no mistake; a scale that neither takes is, and `resolve` says so.
    on_scale = [recipe for recipe in (left, right) if takes_scale(recipe)] or [left]
    trees = [resolve(recipe, scale=scale if recipe in on_scale else None, overrides=overrides or []).tree() for recipe in (left, right)]
    found = [change for change in changes(*trees) if change.path not in LABELS]
    if as_json:
        print(json.dumps([{"path": change.path, "left": change.left, "right": change.right} for change in found], indent=2))
        return
    columns = [Column(_printable(recipe), overflow="fold") for recipe in (left, right)]
    table = Table("setting", *columns, box=None, pad_edge=False, header_style="bold")
    for change in found:
        table.add_row(*(_printable(text) for text in (change.path, show(change.left), show(change.right))))
    Console(markup=False).print(table if found else "no difference")


@app.command("neighbours")
def show_neighbours(
    recipe: RecipeArgument,
    towards: Annotated[str, typer.Option(metavar="NAME|FILE", help="Where the ingredients that are put back come from.")] = "baseline",
    towards_overrides: Annotated[
        list[str] | None, typer.Option("--towards-set", metavar="PATH=VALUE", help="One ingredient of the other recipe; repeat for more.")
    ] = None,
    scale: ScaleOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a recipe's leave-one-out neighbours, each with one ingredient put back, as the commands that train them."""
    given = overrides or []
    found = neighbours(recipe, baseline=towards, scale=scale, overrides=given, baseline_overrides=towards_overrides or [])
    if as_json:
        print(json.dumps([_neighbour_record(neighbour) for neighbour in found], indent=2))
        return
    on_scale = ["--scale", scale] if scale is not None and takes_scale(recipe) else []
    for neighbour in found:
        print(f"# {_printable(neighbour.name)}: {_printable('; '.join(map(str, neighbour.changes)))}")
        settings = [word for setting in (*given, *neighbour.overrides) for word in ("--set", setting)]
        print(shlex.join(["scalerl", "train", recipe, *on_scale, *settings]))
    if not found:
        Console(stderr=True, markup=False).print("no ingredient differs")


def _neighbour_record(neighbour: Neighbour) -> dict[str, object]:
    return {
        "name": neighbour.name,
        "ingredient": neighbour.ingredient,
        "changes": [{"path": change.path, "left": change.left, "right": change.right} for change in neighbour.changes],
        "set": list(neighbour.overrides),
        "hash": neighbour.recipe.hash,
    }


@app.command("from-trl")
def translate_trl(
    file: FileArgument,
    processes: Annotated[int | None, typer.Option(metavar="N", help="How many processes train, where the file does not tell.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a GRPOConfig of TRL as a recipe, and what became of each of its settings on stderr."""
    _print_translation(from_trl(file, processes=processes), as_json=as_json)


@app.command("from-verl")
def translate_verl(file: FileArgument, as_json: JsonOption = False) -> None:
    """Print a configuration of verl as a recipe, and what became of each of its settings on stderr."""
    _print_translation(from_verl(file), as_json=as_json)


def _print_translation(translation: Translation, *, as_json: bool) -> None:
    if as_json:
        settings = [asdict(line) for line in translation.lines]
        print(json.dumps({"library": translation.library, "recipe": translation.tree, "settings": settings}, indent=2, default=str))
        return
    print(translation.to_toml(), end="")
    console = Console(stderr=True, markup=False, highlight=False)
    columns = (Column(header, overflow="fold") for header in (translation.library, "its value", "here", "note"))
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for line in translation.lines:
        if line.fate in ("translated", "left out"):
            table.add_row(*(_printable(cell) for cell in _cells(line)))
    console.print(table)
    for fate, what in (("no effect", "without effect on what is learned"), ("default", "at a default that needs no word")):
        if num := sum(line.fate == fate for line in translation.lines):
            console.print(f"{counted(num, 'setting')} {what}: --json lists them")


def _cells(line: Line) -> tuple[str, str, str, str]:
    value = "" if not line.key else show(line.value) + ("" if line.stated else " (default)")
    here = f"{line.path} = {show(line.ours)}" if line.path else "LEFT OUT"
    return line.key or "(built in)", value, here, line.note


def _printable(text: str) -> str:
    """A file of somebody else's must not steer the terminal: blanks keep a text of several lines readable."""
    return printable(text, instead=" ")


def _batch_in_words(recipe: Recipe) -> str:
    batch = recipe.batch
    return f"{batch.num_prompts} prompts x {batch.group} completions = {batch.num_completions} completions per step"
