"""A configuration of somebody else's while it is translated: what is read is recorded, and what is not is named at the end.

Each setting meets one fate, told in a `Line`:

    translated   it has a place in a recipe; where the file is silent, at THEIR default
    no effect    it says how the run is carried out, or nothing under the other settings
    default      it stands at the value that it has anyway, and no recipe needs to hear of it
    left out     a recipe cannot say it, so that the run here is another one
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from typing import Any, Literal

import tomli_w

from scalerl.core.errors import DataError
from scalerl.core.text import printable
from scalerl.recipes.load import DEFAULT_SCALE, Layer, scale_layer, validated
from scalerl.recipes.places import SHARED
from scalerl.recipes.tree import Tree, assigned, layered, show, with_defaults

Fate = Literal["translated", "no effect", "default", "left out"]

_SECRET = re.compile(r"(^|[_.])(token|password|secret|api_key)$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$[{\w]")


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one setting."""

    key: str
    """Theirs; empty for what their trainer does without a setting."""
    value: Any
    """Theirs; secrets are not repeated."""
    stated: bool
    """Whether the file says it; otherwise it is their default."""
    fate: Fate
    path: str | None = None
    """Ours, dotted."""
    ours: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Translation:
    """A recipe made of another library's configuration, and what became of every setting of it."""

    library: str
    """What the defaults are those of, e.g. TRL 1.16.0."""
    tree: Tree
    """The recipe as far as the configuration goes; a scale lies under it."""
    lines: tuple[Line, ...]

    @property
    def left_out(self) -> tuple[Line, ...]:
        """What the recipe does not say, so that the run differs."""
        return tuple(line for line in self.lines if line.fate == "left out")

    def to_toml(self) -> str:
        """The recipe as a TOML file; what is left out stands above it in comments."""
        comments = [f"# left out: {line.key} = {show(line.value)}: {line.note}" for line in self.left_out]
        return "".join(printable(comment, instead=" ") + "\n" for comment in comments) + tomli_w.dumps(self.tree)


@dataclass(slots=True)
class Reading:
    """The settings of a file over a library's defaults, and the recipe that grows out of them."""

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    origin: str
    """The file, for messages."""
    tree: Tree = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def value(self, key: str) -> Any:
        """The setting as stated, or their default."""
        return self.given.get(key, self.defaults.get(key))

    def number(self, key: str) -> float:
        """The setting as a number; text such as 1e-6, which YAML does not take for one, is read."""
        value = self.value(key)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self._unfit(key, "a number")
        return number

    def count(self, key: str) -> int:
        """The setting as a whole number."""
        number = self.number(key)
        if not number.is_integer():
            raise self._unfit(key, "a whole number")
        return int(number)

    def flag(self, key: str) -> bool:
        """The setting as true or false."""
        value = self.value(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._unfit(key, "true or false")
        return value

    def word(self, key: str) -> str:
        """The setting as a name; an unquoted no, which YAML takes for false, is one."""
        value = self.value(key)
        if value is False:
            return "no"
        if not isinstance(value, str) or _VARIABLE.search(value):
            raise self._unfit(key, "a name")
        return value

    def translate(self, path: str, ours: Any, *keys: str, note: str = "") -> None:
        """Put `ours` at `path` and say that it comes of `keys`, each once; without keys their trainer does it anyway."""
        self.tree = assigned(self.tree, path, ours)
        self._record(keys or ("",), "translated", note, path=path, ours=ours)

    def add(self, path: str, item: Any, *keys: str, note: str = "") -> None:
        """Put one more `item` into the list at `path` and say that it comes of `keys`."""
        section, _, name = path.partition(".")
        items = [*self.tree.get(section, {}).get(name, []), item]
        self.tree = assigned(self.tree, path, items)
        self._record(keys, "translated", note, path=path, ours=item)

    def leave_out(self, *keys: str, note: str) -> None:
        """Name what a recipe cannot say."""
        self._record(keys, "left out", note)

    def pass_over(self, *keys: str, note: str) -> None:
        """Name what has no effect under the other settings; what the file does not state needs no word."""
        self._record([key for key in keys if key in self.given], "no effect", note)

    def pass_over_below(self, prefix: str, *, switch: str) -> None:
        """Name what begins with `prefix` and is not yet spoken for, if the `switch` that it hangs on is off."""
        if not self.value(switch):
            done = {line.key for line in self.lines} | {switch}
            keys = [key for key in self.given if key.startswith(prefix) and key not in done]
            self.pass_over(*keys, note=f"{switch} is {show(self.value(switch))}")

    def unfit(self, key: str, known: Collection[str]) -> DataError:
        """The error for a choice that has no counterpart here."""
        what = f"'{self.value(key)}' has no counterpart here"
        return DataError(what, where=f"{self.origin}: {key}", remedy=f"those with one are {', '.join(known)}")

    def finish(self, name: str, *, library: str, how_it_runs: re.Pattern[str], hints: Mapping[str, str]) -> Translation:
        """The translation, with a line for every setting of the file that nothing was made of.

        Args:
            name: of the recipe.
            library: what the defaults are those of.
            how_it_runs: keys that say how a run is carried out and not what it learns.
            hints: notes by key for what is left out.

        Raises:
            RecipeError: a value is out of range.
        """
        done = {line.key for line in self.lines}
        for key in self.given:
            if key not in done:
                self._record([key], *self._fate(key, library, how_it_runs, hints))
        tree = {"name": name, "about": f"Translated from {self.origin} ({library}).", **self.tree}
        _check(Layer(self.origin, tree))
        return Translation(library, tree, tuple(self.lines))

    def _fate(self, key: str, library: str, how_it_runs: re.Pattern[str], hints: Mapping[str, str]) -> tuple[Fate, str]:
        if key in self.defaults and _same(self.given[key], self.defaults[key]):
            return "default", ""
        if how_it_runs.search(key):
            return "no effect", "how the run is carried out"
        if key in hints:
            return "left out", hints[key]
        if key in self.defaults:
            return "left out", "no counterpart here"
        near = get_close_matches(key, self.defaults, n=1)
        return "left out", f"no setting of {library}" + (f"; did you mean '{near[0]}'?" if near else "")

    def _record(self, keys: Collection[str], fate: Fate, note: str, *, path: str | None = None, ours: Any = None) -> None:
        for key in dict.fromkeys(keys):
            value = "(not repeated)" if _SECRET.search(key) else self.value(key)
            self.lines.append(Line(key, value, key in self.given, fate, path, ours, note))

    def _unfit(self, key: str, kind: str) -> DataError:
        value = self.value(key)
        if isinstance(value, str) and _VARIABLE.search(value):
            return DataError(f"{value!r} is a variable", where=f"{self.origin}: {key}", remedy="give the resolved configuration")
        return DataError(f"{value!r} is not {kind}", where=f"{self.origin}: {key}", remedy=f"give {kind}")


def _check(layer: Layer) -> None:
    """Refuse a recipe that is none on any scale, because a value is out of range there as here."""
    ground = scale_layer(DEFAULT_SCALE)
    defaults = ground.tree.pop("defaults", {})
    complete = with_defaults(layered(ground.tree, layer.tree, shared=SHARED), defaults)
    validated(complete, layers=[layer, ground])


def defaults_of(release: str) -> dict[str, Any]:
    """Every setting of a release and its default, read off its own sources."""
    table: dict[str, Any] = json.loads(resources.files(__package__).joinpath(f"{release}.json").read_text(encoding="utf-8"))
    return table


def _same(value: Any, default: Any) -> bool:
    """Whether two settings are equal; 1 is no true, and 1.0 and the text 1e0 are 1."""
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    if isinstance(value, str) and isinstance(default, (int, float)):
        try:
            return float(value) == default
        except ValueError:
            return False
    return bool(value == default)
