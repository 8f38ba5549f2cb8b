"""From pydantic's validation errors to sentences: what is wrong, in which file, under which key, and what was meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from scalerl.core.components import is_base
from scalerl.core.errors import RecipeError, ScalerlError, did_you_mean
from scalerl.core.units import counted
from scalerl.recipes.places import model_of
from scalerl.recipes.recipe import Recipe

Path = tuple[str | int, ...]
Fault = tuple[Path, str, Any]
"""Where it is, pydantic's word for it, and pydantic's record."""


def explain(error: ValidationError, tree: Mapping[str, Any], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> RecipeError:
    """The first thing that is wrong with `tree`, and how many more there are.

    `layers` are the files that the tree was made of, the deciding one first: the error names the one that said it.
    """
    faults = _faults(error)
    # A wrong key explains a missing one beside it better than the other way round.
    fault = min(faults, key=lambda fault: fault[1] == "missing")
    what, remedy = _sentence(fault, Recipe, tree)
    path = fault[0]
    dotted = ".".join(str(part) for part in path)
    origin = next((origin for origin, layer in layers if _holds(layer, path)), f"recipe '{tree.get('name', '')}'")
    if len(faults) > 1:
        what += f" (and {counted(len(faults) - 1, 'more fault')})"
    return RecipeError(what, where=f"{origin}: {dotted}" if dotted else origin, remedy=remedy)


def check_given(settings: Mapping[str, Any], component: type[BaseModel], *, where: str) -> None:
    """Check some of the settings of `component`, each by itself while others are left to be given elsewhere.

    Raises:
        RecipeError: a key is unknown or a value is wrong.
    """
    try:
        component.model_validate(settings)
    except ValidationError as error:
        # Without a path it is the settings together that do not fit, which those not given can change.
        complete = settings.keys() >= component.model_fields.keys()
        wrong = [fault for fault in _faults(error) if fault[1] != "missing" and (fault[0] or complete)]
        if wrong:
            what, remedy = _sentence(wrong[0], component, settings)
            raise RecipeError(what, where=".".join([where, *map(str, wrong[0][0])]), remedy=remedy) from None


def _faults(error: ValidationError) -> list[Fault]:
    return [fault for detail in error.errors() for fault in _flattened(detail, ())]


def _flattened(detail: Any, prefix: Path) -> list[Fault]:
    """The faults behind one of pydantic's error records; those of a component's settings lie inside its own."""
    path = prefix + tuple(detail["loc"])
    if detail["type"] == "settings":
        return [fault for inner in detail["ctx"]["errors"] for fault in _flattened(inner, path)]
    return [(path, detail["type"], detail)]


def _sentence(fault: Fault, model: type[BaseModel], tree: Mapping[str, Any]) -> tuple[str, str | None]:
    """What is wrong with the `tree` that should be a `model`, and the remedy."""
    path, kind, detail = fault
    if kind == "extra_forbidden":
        return "there is no such key", did_you_mean(str(path[-1]), _keys_at(path[:-1], model, tree))
    if kind == "missing":
        return "it is missing", "give it in the recipe, by the scale or with --set"
    if kind == "selection":
        return detail["ctx"]["what"], detail["ctx"]["remedy"] or "choose another"
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        # Written here or by a plug-in, for people: it says itself what to do.
        return message, None
    if kind == "model_type":
        return f"{detail['input']!r} does not fit", "give a table of its settings"
    return f"{detail['input']!r} does not fit", message[0].lower() + message[1:]


def _keys_at(path: Path, model: type[BaseModel], tree: Mapping[str, Any]) -> list[str]:
    """The keys that what lies at `path` inside `model` takes, following the components that `tree` selects."""
    node: Any = tree
    for part in path:
        node = node[part]
        if isinstance(part, str):
            model = model_of(model.model_fields[part].annotation) or model
        if is_base(model) and isinstance(node, Mapping):
            try:
                model = model.family.get(node["type"])
            except (ScalerlError, KeyError):
                break
    return list(model.model_fields)


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
