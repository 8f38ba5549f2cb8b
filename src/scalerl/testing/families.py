"""Every component of every family, found the way a recipe finds it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import scalerl
from scalerl.core.components import Component, Family, is_base


def families() -> list[Family]:
    """The families that the rooms of this package define, by name."""
    found: dict[str, Family] = {}
    for info in pkgutil.walk_packages(scalerl.__path__, "scalerl."):
        if info.ispkg:
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, type) and is_base(value):
                    found[value.family.name] = value.family
    return [found[name] for name in sorted(found)]


def components() -> Iterator[tuple[Family, str]]:
    """Each family with the name of each of its components, plug-ins included."""
    for family in families():
        for name in family.names():
            yield family, name


def example(component: type[Component]) -> Component:
    """An instance with default settings; a field without default takes the first of its `examples`."""
    required = {name: field.examples[0] for name, field in component.model_fields.items() if field.is_required() and field.examples}
    return component.model_validate(required)
