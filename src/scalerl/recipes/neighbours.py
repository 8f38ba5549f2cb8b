"""Neighbours: a recipe's ingredients with one put back, for every ingredient in which it differs from a baseline.

This is how leave-one-out studies are made (arXiv 2510.13786, figure 7), derived from two recipes instead of written by hand:

    >>> for neighbour in neighbours("scalerl"):
    ...     print(neighbour.name, *neighbour.changes)
    scalerl~loss=dapo objective.loss: cispo(cap=4.0) -> dapo(clip_low=0.2, clip_high=0.28)
    scalerl~aggregation=sample objective.aggregation: prompt -> sample
    scalerl~advantage=group objective.advantage.scale: batch -> group
    scalerl~filters=none curriculum.filters: [zero_variance(refill=false)] -> []
    scalerl~selector=uniform curriculum.selector: no_positive_resampling(threshold=0.9) -> uniform
    scalerl~head=body model.head: fp32 -> body

What depends on scale (model, task, lengths, batch, learning rate) is no ingredient: it stays the recipe's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scalerl.core.errors import RecipeError
from scalerl.recipes.load import resolve, takes_scale
from scalerl.recipes.places import FAMILIES, SHARED
from scalerl.recipes.recipe import Recipe
from scalerl.recipes.tree import Change, Tree, show

INGREDIENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "loss": ("objective.loss",),
        "aggregation": ("objective.aggregation",),
        # Not every baseline takes every scale.
        "advantage": ("objective.advantage", "objective.advantage.scale"),
        "terms": ("objective.terms",),
        "filters": ("curriculum.filters",),
        "selector": ("curriculum.selector",),
        "control": ("length.control",),
        "head": ("model.head",),
        "kv": ("engine.kv",),
        # A schedule says which k it can run with, so that one without the other may be no recipe.
        "schedule": ("pipeline.schedule", "pipeline.k"),
        "on_stale": ("pipeline.on_stale",),
        "batch": ("batch.multiple",),
    }
)
"""By ingredient: the settings that are put back together. A component counts without what its whole family has."""

COMPANIONS: Mapping[str, str] = MappingProxyType({"advantage": "filters", "filters": "advantage"})
"""By ingredient: the one that comes along where it is no recipe alone, as a critic beside the zero-variance filter is none."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A recipe with one ingredient put back to what a baseline has."""

    name: str
    """`recipe~ingredient=what`, with a companion `recipe~ingredient=what,companion=what`, also the name of `recipe`."""
    ingredient: str
    """A key of `INGREDIENTS`."""
    changes: tuple[Change, ...]
    """What the original has on the left, the neighbour on the right."""
    overrides: tuple[str, ...]
    """`path=value` settings that make the neighbour of the original, its name included, as `resolve` and `train --set` take them."""
    recipe: Recipe
    """The neighbour itself, complete."""


def neighbours(
    recipe: str | Path,
    *,
    baseline: str | Path = "baseline",
    scale: str | Path | None = None,
    overrides: Sequence[str] = (),
    baseline_overrides: Sequence[str] = (),
) -> tuple[Neighbour, ...]:
    """The neighbours of `recipe` towards `baseline`, one per ingredient in which they differ.

    An ingredient that is no recipe alone takes its companion along.

    Args:
        recipe: a name of the catalogue or a TOML file.
        baseline: where the ingredients that are put back come from.
        scale: lies under both; a recipe that has every section takes none.
        overrides: `path=value` settings on top of `recipe`.
        baseline_overrides: the same for `baseline`, e.g. for alternatives that no recipe of the catalogue has.

    Raises:
        UnknownNameError: no recipe or scale of that name.
        RecipeError: one of the two recipes, or a neighbour, is none.
    """
    baseline_scale = scale if takes_scale(baseline) else None
    # A scale that neither takes is a mistake, and `resolve` says so.
    own_scale = scale if takes_scale(recipe) or baseline_scale is None else None
    original = resolve(recipe, scale=own_scale, overrides=overrides)
    ours, theirs = original.tree(), resolve(baseline, scale=baseline_scale, overrides=baseline_overrides).tree()
    differing = {ingredient: changed for ingredient, paths in INGREDIENTS.items() if (changed := tuple(_changes(ours, theirs, paths)))}

    def put_back(*ingredients: str) -> Neighbour:
        changed = tuple(change for ingredient in ingredients for change in differing[ingredient])
        name = f"{original.name}~{','.join(f'{ingredient}={_label(differing[ingredient])}' for ingredient in ingredients)}"
        settings = (f"name={json.dumps(name)}", *(setting for change in changed for setting in _settings(change)))
        neighbour = resolve(recipe, scale=own_scale, overrides=[*overrides, *settings])
        return Neighbour(name, ingredients[0], changed, settings, neighbour)

    found = []
    for ingredient in differing:
        try:
            found.append(put_back(ingredient))
        except RecipeError:
            companion = COMPANIONS.get(ingredient)
            if companion is None or companion not in differing:
                raise
            found.append(put_back(ingredient, companion))
    return tuple(found)


def _changes(left: Tree, right: Tree, paths: Iterable[str]) -> Iterable[Change]:
    for path in paths:
        before, after = _own(left, path), _own(right, path)
        if before != after:
            yield Change(path, before, after)


def _own(tree: Tree, path: str) -> Any:
    """The setting at `path`, or None; of a component without the settings that its family shares, which stay its own."""
    place = tuple(path.split("."))
    value: Any = tree
    for part in place:
        value = value.get(part) if isinstance(value, Mapping) else None
    if place in FAMILIES and isinstance(value, Mapping):
        return {key: setting for key, setting in value.items() if key not in SHARED[place]}
    return value


def _label(changed: Sequence[Change]) -> str:
    """What is put back, in a word: the component's name or the value."""
    return ",".join(_word(change.right) for change in changed)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value["type"])
    if isinstance(value, list):
        return "+".join(map(_word, value)) or "none"
    return show(value)


def _settings(change: Change) -> list[str]:
    """`path=value` settings that make the right-hand side of a change of what the left-hand side has."""
    left, right = change.left, change.right
    if right is None:
        return [f"{change.path}=none"]
    set_ = f"{change.path}={_toml(right)}"
    if isinstance(left, Mapping) and isinstance(right, Mapping) and left["type"] == right["type"]:
        # Settings of one component are merged: those that the other side leaves open have to go by name.
        return [set_, *(f"{change.path}.{key}=none" for key in left.keys() - right.keys())]
    return [set_]


def _toml(value: Any) -> str:
    """A setting as TOML writes it in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
