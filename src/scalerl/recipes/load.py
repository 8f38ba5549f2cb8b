"""From names and files to a resolved recipe, in four layers, later ones on top:

    1. a scale            model, task, lengths, batch, learning rate, clip ranges, budget ...
    2. the recipe         ingredients, after those of the recipes that it `extends`
    3. --set path=value   one setting at a time
    4. (fields' defaults  where nothing was said)

A scale fills what a recipe leaves open; a recipe that has every section, such as that of a run directory, stands alone.
A scale's table `defaults` holds settings by component (`defaults.objective.loss.gspo.clip_low`), which apply where the
recipe selects that component.

    >>> resolve("scalerl", overrides=["objective.loss=dapo"]).objective.loss
    Dapo(clip_low=0.2, clip_high=0.28)
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scalerl.core.components import plugin_modules
from scalerl.core.errors import DataError, RecipeError, UsageError, unknown_name
from scalerl.recipes.explain import explain
from scalerl.recipes.recipe import Recipe
from scalerl.recipes.tree import LABELS, Tree, assigned, layered, with_defaults

DEFAULT_SCALE = "laptop"


@dataclass(frozen=True, slots=True)
class Layer:
    """A tree and where it came from, so that an error can name the file."""

    origin: str
    tree: Tree


def resolve(recipe: str | Path, *, scale: str | Path = DEFAULT_SCALE, overrides: Sequence[str] = ()) -> Recipe:
    """The complete recipe called `recipe` (a catalogue name or a TOML file) on `scale`, with `path=value` overrides.

    Raises:
        UnknownNameError: no recipe or scale of that name.
        RecipeError: a file is no TOML, a key is unknown, a value is wrong, something is missing or contradicts itself.
    """
    ingredients, by_hand = ingredient_layers(recipe), Layer("--set", {})
    ground = Layer("", {}) if _stands_alone(ingredients) else scale_layer(scale)
    defaults = ground.tree.pop("defaults", {})
    tree = ground.tree
    for layer in ingredients:
        tree = layered(tree, layer.tree)
    for override in overrides:
        tree = _overridden(tree, override)
        by_hand = Layer("--set", _overridden(by_hand.tree, override))
    tree = {"name": _stem(recipe), **with_defaults(tree, defaults)}
    return validated(tree, layers=[by_hand, *reversed(ingredients), ground])


def _stands_alone(ingredients: Sequence[Layer]) -> bool:
    """Whether a recipe has every section, so that a scale could only add what it leaves out on purpose."""
    required = {name for name, field in Recipe.model_fields.items() if field.is_required()} - set(LABELS)
    return required <= {key for layer in ingredients for key in layer.tree}


def validated(tree: Mapping[str, Any], *, layers: Sequence[Layer]) -> Recipe:
    """The recipe that `tree` spells out; what is wrong with it is told with the layer it came from."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise explain(error, tree, [(layer.origin, layer.tree) for layer in layers]) from None


def load_resolved(path: Path) -> Recipe:
    """A recipe file that spells out everything, such as the one of a run directory."""
    tree = _read(path, str(path))
    return validated(tree, layers=[Layer(str(path), tree)])


def recipe_names() -> list[str]:
    """The names of the catalogue, plug-ins included."""
    return sorted(_files("catalogue", plugins="scalerl.recipes"))


def scale_names() -> list[str]:
    """The names of the scales, plug-ins included."""
    return sorted(_files("scales", plugins="scalerl.scales"))


def scale_layer(scale: str | Path) -> Layer:
    """The layer of a scale, by name or file."""
    origin, tree = _find(scale, kind="scale", files=_files("scales", plugins="scalerl.scales"))
    return Layer(origin, _without_labels(tree))


def ingredient_layers(recipe: str | Path) -> list[Layer]:
    """The layers of a recipe from the one it goes back to up to itself, following `extends`."""
    layers: list[Layer] = []
    seen: list[str] = []
    next_recipe: str | Path | None = recipe
    files = _files("catalogue", plugins="scalerl.recipes")
    while next_recipe is not None:
        origin, tree = _find(next_recipe, kind="recipe", files=files)
        if origin in seen:
            raise RecipeError("it extends itself: " + " -> ".join([*seen, origin]), where=origin, remedy="take one 'extends' out")
        seen.append(origin)
        parent = tree.pop("extends", None)
        layers.insert(0, Layer(origin, tree))
        next_recipe = _parent(parent, origin)
    *parents, leaf = layers
    return [*(Layer(layer.origin, _without_labels(layer.tree)) for layer in parents), leaf]


def _without_labels(tree: Tree) -> Tree:
    """A tree without what it says about itself, which is not true of what is built on it."""
    return {key: value for key, value in tree.items() if key not in LABELS}


def _parent(parent: object, origin: str) -> str | Path | None:
    if parent is None or (isinstance(parent, str) and not _is_path(parent)):
        return parent
    if not isinstance(parent, str):
        raise RecipeError("'extends' is no name and no path", where=f"{origin}: extends", remedy="name one recipe")
    return Path(origin).parent / parent


def _find(name: str | Path, *, kind: str, files: Mapping[str, Traversable | Path]) -> tuple[str, Tree]:
    if isinstance(name, Path) or _is_path(name):
        return str(name), _read(Path(name), str(name))
    if name not in files:
        raise unknown_name(kind, name, files)
    return f"{name}.toml", _read(files[name], f"{name}.toml")


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def _stem(recipe: str | Path) -> str:
    return Path(recipe).name.removesuffix(".toml")


def _files(folder: str, *, plugins: str) -> dict[str, Traversable]:
    """The TOML files of a folder of this package and of the packages that plug-ins name, by stem."""
    folders: list[Traversable] = [resources.files("scalerl.recipes") / folder]
    folders += [resources.files(module) for module in plugin_modules(plugins)]
    found: dict[str, Traversable] = {}
    for file in (file for place in folders for file in place.iterdir() if file.name.endswith(".toml")):
        if found.setdefault(_stem(file.name), file) is not file:
            raise UsageError(f"two files are called '{file.name}'", where=f"{found[_stem(file.name)]} and {file}", remedy="rename one")
    return found


def _read(file: Traversable | Path, origin: str) -> Tree:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("there is no such file", where=origin, remedy="give the name of a recipe or the path of a TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read ({error})", where=origin, remedy="give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"this is no TOML: {error}", where=origin, remedy="mend that line") from None


def _overridden(tree: Tree, override: str) -> Tree:
    """`tree` with one `path=value` on top; `none` takes an optional part out, and what is no TOML value is text."""
    path, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not path:
        raise RecipeError(f"'{override}' sets nothing", where="--set", remedy="write --set path=value, e.g. --set batch.group=16")
    value = None if text == "none" else _toml_value(text)
    try:
        if value is None or any(part.isdecimal() for part in path.split(".")):
            return assigned(tree, path, value)
    except KeyError as error:
        raise RecipeError(f"'{error.args[0]}' is no item of a list", where=f"--set {override}", remedy="count items from 0") from None
    # Layered, not assigned: selecting another component drops the settings of the one before.
    return layered(tree, assigned({}, path, value))


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
