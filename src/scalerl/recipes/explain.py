"""From pydantic's validation errors to sentences: what is wrong, in which file, under which key, and what was meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from scalerl.core.components import Component
from scalerl.core.errors import RecipeError, ScalerlError, did_you_mean
from scalerl.recipes.recipe import Recipe

Path = tuple[str | int, ...]


def explain(error: ValidationError, tree: Mapping[str, Any], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> RecipeError:
    """The first thing that is wrong with `tree`, and how many more there are.

    `layers` are the files that the tree was made of, the deciding one first: the error names the one that said it.
    """
    faults = [fault for detail in error.errors() for fault in _flattened(detail, ())]
    # A wrong key explains a missing one beside it better than the other way round.
    path, kind, detail = min(faults, key=lambda fault: fault[1] == "missing")
    what, remedy = _sentence(path, kind, detail, tree)
    dotted = ".".join(str(part) for part in path)
    origin = next((origin for origin, layer in layers if _holds(layer, path)), f"recipe '{tree.get('name', '')}'")
    if len(faults) > 1:
        what += f" (and {len(faults) - 1} more faults)"
    return RecipeError(what, where=f"{origin}: {dotted}" if dotted else origin, remedy=remedy)


def _flattened(detail: Any, prefix: Path) -> list[tuple[Path, str, Any]]:
    """The faults behind one of pydantic's error records; those of a component's settings lie inside its own."""
    path = prefix + tuple(detail["loc"])
    if detail["type"] == "settings":
        return [fault for inner in detail["ctx"]["errors"] for fault in _flattened(inner, path)]
    return [(path, detail["type"], detail)]


def _sentence(path: Path, kind: str, detail: Any, tree: Mapping[str, Any]) -> tuple[str, str | None]:
    """What is wrong at `path`, and the remedy."""
    if kind == "extra_forbidden":
        return "there is no such key", did_you_mean(str(path[-1]), _keys_at(path[:-1], tree))
    if kind == "missing":
        return "it is missing", "give it in the recipe, by the scale or with --set"
    if kind == "selection":
        return detail["ctx"]["what"], detail["ctx"]["remedy"] or "choose another"
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        # Written here or by a plug-in, for people: it says itself what to do.
        return message, None
    return f"{detail['input']!r} does not fit", message[0].lower() + message[1:]


def _keys_at(path: Path, tree: Mapping[str, Any]) -> list[str]:
    """The keys that the model at `path` takes, following the components that `tree` selects."""
    model: type[BaseModel] = Recipe
    node: Any = tree
    for part in path:
        node = node[part]
        if isinstance(part, str):
            model = _model_of(model.model_fields[part].annotation)
        if issubclass(model, Component) and "family" in vars(model) and isinstance(node, Mapping):
            try:
                model = model.family.get(node["type"])
            except (ScalerlError, KeyError):
                break
    return list(model.model_fields)


def _model_of(annotation: Any) -> type[BaseModel]:
    """The model inside an annotation such as `WarmStart | None` or `tuple[Filter, ...]`."""
    candidates = [annotation, *get_args(annotation)]
    return next(candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel))


def _holds(layer: Mapping[str, Any], path: Path) -> bool:
    """Whether `layer` says something at `path`."""
    node: Any = layer
    for part in path:
        if isinstance(node, Mapping) and str(part) in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return False
    return bool(path)
