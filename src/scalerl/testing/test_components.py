"""What every component keeps, whatever its family: run over all that are installed, so no author writes these tests."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import tomli_w
from pydantic import TypeAdapter, ValidationError

from scalerl.core.components import Component, Family
from scalerl.testing.families import components, example

ALL = [pytest.param(family, name, id=f"{family.name}/{name}") for family, name in components()]
HEAVY = ("torch", "transformers", "ray", "vllm", "matplotlib")


@pytest.mark.parametrize(("family", "name"), ALL)
def test_it_is_documented_in_its_file_and_class(family: Family, name: str) -> None:
    """A module's docstring says what and whence, the class's what is special."""
    component = family.get(name)
    assert (inspect.getmodule(component).__doc__ or "").strip()
    assert (vars(component).get("__doc__") or "").strip()


@pytest.mark.parametrize(("family", "name"), ALL)
def test_it_is_frozen_and_refuses_unknown_settings(family: Family, name: str) -> None:
    """Settings are data: they do not change under a run, and a misspelt one is an error."""
    component = family.get(name)
    assert component.model_config.get("frozen")
    with pytest.raises(ValidationError, match="no_such_setting"):
        component.model_validate({**example(component).model_dump(), "no_such_setting": 1})


@pytest.mark.parametrize(("family", "name"), ALL)
def test_its_settings_survive_a_recipe_file(family: Family, name: str) -> None:
    """Component -> TOML -> component gives an equal one, under its own name."""
    before = example(family.get(name))
    selection = before.selection()
    assert selection["type"] == name == before.name()
    written = tomli_w.dumps({"component": selection})
    base: TypeAdapter[Any] = TypeAdapter(family.base)
    assert base.validate_python(tomllib.loads(written)["component"]) == before


@pytest.mark.parametrize(("family", "name"), ALL)
def test_required_settings_have_examples(family: Family, name: str) -> None:
    """Without them nobody, a test or a reader, could make one."""
    component = family.get(name)
    lacking = [key for key, field in component.model_fields.items() if field.is_required() and not field.examples]
    assert lacking == [], "give them examples=[...] in Field()"


def test_no_component_file_imports_what_is_heavy() -> None:
    """Settings are read without torch; a component that needs it keeps its working class in a sibling `_NAME.py`."""
    code = (
        "import json, sys\n"
        "from scalerl.testing.families import components\n"
        "for family, name in components(): family.get(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(loaded) == []


def test_every_family_has_components() -> None:
    """A family without one cannot be selected from."""
    assert {family.name for family, _ in components()} >= {"laws", "importers", "losses"}
    assert all(issubclass(family.base, Component) for family, _ in components())
