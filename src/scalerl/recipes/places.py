"""Where a recipe selects components: every place and its family's base, read off the `Recipe` model.

>>> FAMILIES["objective", "loss"].__name__, sorted(SHARED["engine",])
('Loss', ['kv', 'slots', 'temperature'])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from scalerl.core.components import Component, is_base
from scalerl.recipes.recipe import Recipe

Place = tuple[str, ...]


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `WarmStart | None` or `tuple[Filter, ...]`; None if there is none."""
    candidates = [annotation, *get_args(annotation)]
    return next((candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel)), None)


def _places(model: type[BaseModel], place: Place) -> Iterator[tuple[Place, type[Component]]]:
    for name, field in model.model_fields.items():
        inner = model_of(field.annotation)
        if inner is None:
            continue
        if is_base(inner):
            yield (*place, name), inner
        else:
            yield from _places(inner, (*place, name))


FAMILIES = dict(_places(Recipe, ()))
"""By place: the base of the family that is selected from."""

SHARED = {place: frozenset(base.model_fields) for place, base in FAMILIES.items()}
"""By place: the settings that every component of its family has, so that they outlive the selection of another one."""
