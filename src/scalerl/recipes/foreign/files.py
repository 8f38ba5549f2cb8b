"""From a file of somebody else's to settings by key: JSON, YAML, or the `key=value` words of a command.

Nothing in such a file is trusted: only plain values are read, a key that comes twice is an error (the parsers would drop one),
and size and depth are bounded, so that aliases cannot blow up.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from scalerl.core.errors import DataError, UsageError

Flat = dict[str, Any]
"""Settings by dotted key."""

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_MOST_BYTES = 256 * 1024
"""verl's whole default configuration has 35 kB."""
_MOST_VALUES = 20_000
_MOST_LEVELS = 40


def settings_of(path: Path, *, nested: bool) -> Flat:
    """The settings of a JSON or YAML file, or of a text of `key=value` words (any other suffix, or a YAML list of such words).

    Args:
        path: the file.
        nested: whether tables are spelt out as dotted keys; otherwise a table is one value.

    Raises:
        UsageError: there is no such file.
        DataError: it is too large, no text, neither format, or no mapping.
    """
    text = _text(path)
    if path.suffix not in (".json", ".yaml", ".yml"):
        return _of_words(_words(text, path), path)
    tree = _json(text, path) if path.suffix == ".json" else _yaml(text, path)
    _check_size(tree, path)
    if isinstance(tree, list) and tree and all(isinstance(item, str) and "=" in item for item in tree):
        return _of_words(tree, path)
    if not isinstance(tree, Mapping):
        _refuse("it holds no settings by name", path, "give the configuration itself")
    return _collected(_flattened(tree) if nested else ((str(key), value) for key, value in tree.items()), path)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            _refuse(f"its {path.stat().st_size} bytes are more than any configuration has", path, "give the configuration file")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError("there is no such file", where=str(path), remedy="give the path of a configuration") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read ({error})", where=str(path), remedy="give a text file") from None


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _collected(pairs, path))
    except (ValueError, RecursionError) as error:
        _refuse(f"this is no JSON: {error}", path, "mend that place")


def _yaml(text: str, path: Path) -> Any:
    try:
        return _plain(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        _refuse(f"this is no plain YAML: {what}{place}", path, "give values only, each key once, without tags that run code")


def _plain(text: str) -> Any:
    """The plain values of a YAML text: what a tag would build, and a key that comes twice, is an error."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        _check_keys(node)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(root: yaml.Node | None) -> None:
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if node is None or isinstance(node, yaml.ScalarNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
            continue
        keys = set()
        for key, value in node.value:
            if isinstance(key.value, str) and key.value in keys:
                raise yaml.constructor.ConstructorError(problem=f"the key '{key.value}' comes twice", problem_mark=key.start_mark)
            keys.add(key.value if isinstance(key.value, str) else id(key))
            pending.append(value)


def _words(text: str, path: Path) -> list[str]:
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        _refuse(f"its words cannot be told apart ({error})", path, "close the quotes")
    return [word for word in words if "=" in word or re.fullmatch(r"~[\w.]+", word)]


def _of_words(words: Iterable[str], path: Path) -> Flat:
    """The settings that words say; what the shell would put in for a variable that an earlier word sets is put in."""
    settings: list[tuple[str, Any]] = []
    variables: dict[str, str] = {}
    used: set[str] = set()
    for word in words:
        key, _, text = word.partition("=")
        used |= set(_VARIABLE.findall(text)) & variables.keys()
        text = _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text)
        if key.isidentifier():
            variables[key] = text
        settings.append((key.lstrip("+"), _value(text)))
    found = _collected(((key, value) for key, value in settings if key not in used), path)
    _check_size(found, path)
    return found


def _value(text: str) -> Any:
    try:
        return _plain(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _flattened(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_size(tree: Any, path: Path) -> None:
    """Refuse what unfolds without end or nearly so, as aliases can."""
    pending, num_values = [(tree, 0)], 0
    while pending:
        node, level = pending.pop()
        num_values += 1
        if level > _MOST_LEVELS or num_values > _MOST_VALUES:
            _refuse(f"it unfolds to more than {_MOST_VALUES} values or {_MOST_LEVELS} levels", path, "give the configuration file")
        inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
        pending.extend((item, level + 1) for item in inner)


def _collected(pairs: Iterable[tuple[str, Any]], path: Path) -> Flat:
    found: Flat = {}
    for key, value in pairs:
        if key in found:
            _refuse(f"the key '{key}' comes twice", path, "take one out")
        found[key] = value
    return found


def _refuse(what: str, path: Path, remedy: str) -> NoReturn:
    raise DataError(what, where=str(path), remedy=remedy)
