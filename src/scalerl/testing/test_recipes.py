"""What every recipe keeps, those of plug-ins included, on every scale."""

from __future__ import annotations

import tomllib

import pytest

from scalerl.recipes import Recipe, applied, changes, ingredient_layers, recipe_names, resolve, scale_names
from scalerl.recipes.load import scale_layer, takes_scale

RECIPES = [
    pytest.param(name, scale, id=f"{name}@{scale}") for name in recipe_names() for scale in (scale_names() if takes_scale(name) else [None])
]
SCALE_SECTIONS = ("task", "trainer", "budget", "runtime")


@pytest.mark.parametrize(("name", "scale"), RECIPES)
def test_it_resolves_and_survives_its_own_file(name: str, scale: str | None) -> None:
    """Recipe -> TOML -> recipe gives an equal one with the same hash."""
    recipe = resolve(name, scale=scale)
    again = Recipe.model_validate(tomllib.loads(recipe.to_toml()))
    assert again == recipe
    assert again.hash == recipe.hash


@pytest.mark.parametrize(("name", "scale"), RECIPES)
def test_its_difference_from_scalerl_can_be_applied(name: str, scale: str | None) -> None:
    """The diff of two recipes applied to one gives the other."""
    left, right = resolve("scalerl", scale=scale).tree(), resolve(name, scale=scale).tree()
    assert applied(left, changes(left, right)) == right


@pytest.mark.parametrize("name", recipe_names())
def test_it_says_what_it_is_and_holds_ingredients_only(name: str) -> None:
    """What depends on the size of a run belongs to a scale, or the recipe could not be tried on a laptop."""
    leaf = ingredient_layers(name)[-1].tree
    assert leaf.get("about")
    assert [section for section in SCALE_SECTIONS if section in leaf] == []


@pytest.mark.parametrize("name", scale_names())
def test_a_scale_selects_no_ingredient(name: str) -> None:
    """Its per-component defaults leave the choice of components to the recipe."""
    tree = scale_layer(name).tree
    assert "objective" not in tree
    assert "curriculum" not in tree
