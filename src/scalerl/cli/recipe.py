"""List recipes, show one in full, or tell what two differ in."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from scalerl.core.text import printable
from scalerl.recipes import Recipe, changes, ingredient_layers, recipe_names, resolve, scale_names
from scalerl.recipes.load import DEFAULT_SCALE, takes_scale
from scalerl.recipes.tree import LABELS, show

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

RecipeArgument = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A recipe of the catalogue, or a TOML file.")]
ScaleOption = Annotated[
    str | None,
    typer.Option(metavar="NAME|FILE", help=f"What fills in model, task, lengths, batch and budget; {DEFAULT_SCALE} if left out."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="One setting on top; repeat for more.")]
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


def _printable(text: str) -> str:
    """A file of somebody else's must not steer the terminal: blanks keep a text of several lines readable."""
    return printable(text, instead=" ")


def _batch_in_words(recipe: Recipe) -> str:
    batch = recipe.batch
    return f"{batch.num_prompts} prompts x {batch.group} completions = {batch.num_completions} completions per step"
