"""Trees of plain settings, as TOML holds them: layering one on another, and the changes between two.

A *selection* is a table with a `type`: it names a component. Settings of one component mean nothing to another, so a
selection of another type replaces the table, but for what both share, where everything else is merged key by key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Tree = dict[str, Any]
Shared = Mapping[tuple[str, ...], Collection[str]]
"""By place in the tree: the settings that stay when another component is selected there."""
NOTHING_SHARED: Shared = MappingProxyType({})

LABELS = ("name", "about")
"""What a recipe says about itself: no setting, and no part of its hash."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs: its dotted path and both values; None where a side does not have it."""

    path: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.path}: {show(self.left)} -> {show(self.right)}"


def layered(base: Mapping[str, Any], over: Mapping[str, Any], *, shared: Shared = NOTHING_SHARED, place: tuple[str, ...] = ()) -> Tree:
    """`base` with `over` on top: tables merge, everything else is replaced, and so is a selection of another type.

    `shared` names the settings that a selection of another type takes over; `place` is where the two trees lie.
    """
    merged = dict(base)
    for key, value in over.items():
        merged[key] = _layered_value(merged.get(key), value, shared=shared, place=(*place, key))
    return merged


def _layered_value(below: Any, value: Any, *, shared: Shared, place: tuple[str, ...]) -> Any:
    # A bare name is a selection without settings, so that settings can be added to it.
    if isinstance(value, str) and isinstance(below, Mapping) and "type" in below:
        value = {"type": value}
    if not isinstance(value, Mapping):
        return value
    if not isinstance(below, Mapping):
        below = {"type": below} if isinstance(below, str) else {}
    if "type" in value and "type" in below and value["type"] != below["type"]:
        below = {key: setting for key, setting in below.items() if key in shared.get(place, ())}
    return layered(below, value, shared=shared, place=place)


def with_defaults(tree: Any, defaults: Any) -> Any:
    """`tree` with settings filled in for the components it selects, and for no others.

    `defaults` mirrors the tree, with the component's type as one more level: `{"objective": {"loss": {"gspo": {...}}}}`
    fills the settings of `objective.loss` where its type is gspo.
    """
    if isinstance(tree, list):
        return [with_defaults(item, defaults) for item in tree]
    selected = tree if isinstance(tree, str) else tree.get("type") if isinstance(tree, Mapping) else None
    if isinstance(selected, str):
        settings = defaults.get(selected)
        return layered({"type": selected, **settings}, {} if isinstance(tree, str) else tree) if settings else tree
    if isinstance(tree, Mapping):
        return {key: with_defaults(value, defaults[key]) if key in defaults else value for key, value in tree.items()}
    return tree


def assigned(tree: Mapping[str, Any], path: str, value: Any) -> Tree:
    """`tree` with the setting at the dotted `path` set to `value`, or removed if that is None.

    A number in the path counts the items of a list; removing one moves up those behind it. Raises KeyError with the part
    of the path that leads nowhere.
    """
    head, _, rest = path.partition(".")
    changed = dict(tree)
    if rest:
        changed[head] = _assigned_below(tree.get(head, {}), rest, value, prefix=head)
    elif value is None:
        changed.pop(head, None)
    else:
        changed[head] = value
    return changed


def _assigned_below(node: Any, path: str, value: Any, *, prefix: str) -> Any:
    if isinstance(node, str):
        node = {"type": node}
    if isinstance(node, Mapping):
        return assigned(node, path, value)
    head, _, rest = path.partition(".")
    if not isinstance(node, list) or not head.isdecimal() or int(head) >= len(node):
        raise KeyError(f"{prefix}.{head}")
    items = list(node)
    if rest:
        items[int(head)] = _assigned_below(items[int(head)], rest, value, prefix=f"{prefix}.{head}")
    else:
        items[int(head) : int(head) + 1] = [] if value is None else [value]
    return items


def changes(left: Mapping[str, Any], right: Mapping[str, Any], *, prefix: str = "") -> Iterator[Change]:
    """The changes that make `right` of `left`, by path; a selection of another type is one change, and so is a list."""
    for key in sorted(left.keys() | right.keys()):
        before, after = left.get(key), right.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping) and before.get("type") == after.get("type"):
            yield from changes(before, after, prefix=f"{prefix}{key}.")
        else:
            yield Change(f"{prefix}{key}", before, after)


def applied(tree: Mapping[str, Any], changed: Iterable[Change]) -> Tree:
    """`tree` with the right-hand side of every change: `applied(a, changes(a, b)) == b`."""
    result = dict(tree)
    for change in changed:
        result = assigned(result, change.path, change.right)
    return result


def show(value: Any) -> str:
    """A setting for people: `cispo(cap=5.0)`, `[zero_variance(refill=false)]`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        settings = ", ".join(f"{key}={show(item)}" for key, item in value.items() if key != "type")
        return f"{value['type']}({settings})" if "type" in value and settings else str(value.get("type", f"({settings})"))
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)
