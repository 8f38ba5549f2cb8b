"""From names and files to a resolved recipe, in four layers, later ones on top:

    1. a scale            model, task, lengths, batch, learning rate, clip ranges, budget ...
    2. the recipe         ingredients, after those of the recipes that it `extends`
    3. --set path=value   one setting at a time
    4. (fields' defaults  where nothing was said)

A scale fills what a recipe leaves open; a recipe that has every section, such as that of a run directory, stands alone.
A scale's table `defaults` holds settings by component (`defaults.objective.loss.gspo.clip_low`), which apply where the
recipe selects that component. A layer that selects another component of a family keeps what the whole family has.

    >>> resolve("scalerl", overrides=["objective.loss=dapo"]).objective.loss
    Dapo(clip_low=0.2, clip_high=0.28, dual_clip=None)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scalerl.core.components import importing_plugin, plugin_modules
from scalerl.core.errors import DataError, RecipeError, UsageError, did_you_mean, unknown_name
from scalerl.recipes.explain import check_given, explain
from scalerl.recipes.places import FAMILIES, SHARED, Place
from scalerl.recipes.recipe import Recipe
from scalerl.recipes.tree import LABELS, Tree, assigned, layered, with_defaults

DEFAULT_SCALE = "laptop"


@dataclass(frozen=True, slots=True)
class Layer:
    """A tree and where it came from, so that an error can name the file."""

    origin: str
    tree: Tree


def resolve(recipe: str | Path, *, scale: str | Path | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """The complete recipe called `recipe` (a catalogue name or a TOML file) on `scale`, with `path=value` overrides.

    Without `scale` one that leaves something open lies on `DEFAULT_SCALE`.

    Raises:
        UnknownNameError: no recipe or scale of that name.
        RecipeError: a file is no TOML, a key is unknown, a value is wrong, something is missing or contradicts itself, or a
            scale is given for a recipe that has every section.
    """
    ingredients, by_hand = ingredient_layers(recipe), Layer("--set", {})
    ground = _ground(ingredients, scale)
    defaults = ground.tree.pop("defaults", {})
    tree = ground.tree
    for layer in ingredients:
        tree = layered(tree, layer.tree, shared=SHARED)
    for override in overrides:
        tree = _overridden(tree, override)
        by_hand = Layer("--set", _overridden(by_hand.tree, override))
    tree = {"name": _stem(recipe), **with_defaults(tree, defaults)}
    # What no layer says itself is one of the scale's defaults.
    filled = Layer(ground.origin, tree)
    return validated(tree, layers=[by_hand, *reversed(ingredients), filled])


def name_of(recipe: str | Path) -> str:
    """What a recipe is called: as it says itself, or by its file."""
    return str(ingredient_layers(recipe)[-1].tree.get("name", _stem(recipe)))


def takes_scale(recipe: str | Path) -> bool:
    """Whether a scale lies under `recipe`: not if it has every section."""
    return not _stands_alone(ingredient_layers(recipe))


def _ground(ingredients: Sequence[Layer], scale: str | Path | None) -> Layer:
    """The scale under a recipe, or nothing under one that stands alone."""
    if not _stands_alone(ingredients):
        return scale_layer(DEFAULT_SCALE if scale is None else scale)
    leaf = ingredients[-1].origin
    if scale is not None:
        # A misspelt scale is the first thing to tell.
        scale_layer(scale)
        raise RecipeError("it has every section, so no scale lies under it", where=leaf, remedy="leave --scale out")
    return Layer(leaf, {})


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
    """The layer of a scale, by name or file, its `defaults` checked."""
    origin, tree = _found(scale, kind="scale", files=_files("scales", plugins="scalerl.scales")).read()
    _check_defaults(tree.get("defaults", {}), (), origin=origin)
    return Layer(origin, _without_labels(tree))


def _check_defaults(node: object, place: Place, *, origin: str) -> None:
    """Refuse defaults for what no recipe can select: they lie below a family's place by the names of its components."""
    where = f"{origin}: {'.'.join(('defaults', *place))}"
    family = FAMILIES[place].family if place in FAMILIES else None
    below = {other[len(place)] for other in FAMILIES if other[: len(place)] == place != other}
    known = family.names() if family else below
    for key, inner in _table(node, where).items():
        if key not in known:
            what = f"there is no {family.kind} '{key}'" if family else "there is no such key"
            raise RecipeError(what, where=f"{where}.{key}", remedy=did_you_mean(key, known))
        if family:
            check_given(_table(inner, f"{where}.{key}"), family.get(key), where=f"{where}.{key}")
        else:
            _check_defaults(inner, (*place, key), origin=origin)


def _table(node: object, where: str) -> Tree:
    if not isinstance(node, dict):
        raise RecipeError(f"{node!r} is no table", where=where, remedy="give a table of settings by component")
    return node


def ingredient_layers(recipe: str | Path) -> list[Layer]:
    """The layers of a recipe from the one it goes back to up to itself, following `extends`."""
    layers: list[Layer] = []
    seen: list[_File] = []
    next_recipe: str | Path | None = recipe
    files = _files("catalogue", plugins="scalerl.recipes")
    while next_recipe is not None:
        found = _found(next_recipe, kind="recipe", files=files)
        if found in seen:
            chain = " -> ".join(file.origin for file in [*seen, found])
            raise RecipeError(f"it extends itself: {chain}", where=found.origin, remedy="take one 'extends' out")
        seen.append(found)
        origin, tree = found.read()
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


@dataclass(frozen=True, slots=True)
class _File:
    """A file of settings: what it is, however it was spelt, and what messages call it."""

    identity: Path | tuple[str, str]
    origin: str = field(compare=False)
    file: Traversable | Path = field(compare=False)

    def read(self) -> tuple[str, Tree]:
        return self.origin, _read(self.file, self.origin)


def _found(name: str | Path, *, kind: str, files: Mapping[str, Traversable]) -> _File:
    if isinstance(name, Path) or _is_path(name):
        return _File(Path(name).resolve(), origin=str(name), file=Path(name))
    if name not in files:
        raise unknown_name(kind, name, files)
    return _File(("catalogue", name), origin=f"{name}.toml", file=files[name])


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def _stem(recipe: str | Path) -> str:
    return Path(recipe).name.removesuffix(".toml")


def _files(folder: str, *, plugins: str) -> dict[str, Traversable]:
    """The TOML files of a folder of this package and of the packages that plug-ins name, by stem."""
    folders: list[Traversable] = [resources.files("scalerl.recipes") / folder]
    for module in plugin_modules(plugins):
        with importing_plugin(module):
            folders.append(resources.files(module))
    found: dict[str, Traversable] = {}
    for file in (file for place in folders for file in place.iterdir() if file.name.endswith(".toml")):
        if found.setdefault(_stem(file.name), file) is not file:
            raise UsageError(f"two files are called '{file.name}'", where=f"{found[_stem(file.name)]} and {file}", remedy="rename one")
    return found


def _read(file: Traversable | Path, origin: str) -> Tree:
    try:
        # Some editors put a byte order mark before the text, which is no TOML.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError("there is no such file", where=origin, remedy="give the name of a recipe or the path of a TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read ({error})", where=origin, remedy="give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"this is no TOML: {error}", where=origin, remedy="mend that line") from None


def _overridden(tree: Tree, override: str) -> Tree:
    """`tree` with one `path=value` on top; `none` takes an optional part or a list's item out, and what is no TOML is text."""
    if len(override.strip().splitlines()) > 1:
        raise RecipeError(f"{override!r} is more than one line", where="--set", remedy="write \\n in quotes for a line break")
    path, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not path:
        raise RecipeError(f"'{override}' sets nothing", where="--set", remedy="write --set path=value, e.g. --set batch.group=16")
    value = None if text == "none" else _toml_value(text)
    try:
        if value is None or any(re.fullmatch(r"-?\d+", part) for part in path.split(".")):
            return assigned(tree, path, value)
    except KeyError as error:
        raise RecipeError(f"'{error.args[0]}' is no item of a list", where=f"--set {override}", remedy="count items from 0") from None
    # Layered, not assigned: selecting another component drops the settings of the one before.
    return layered(tree, assigned({}, path, value), shared=SHARED)


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
