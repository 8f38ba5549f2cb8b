"""Recipes: a run as data that is complete, can be compared and has a hash.

A catalogue recipe holds ingredients (loss, aggregation, filters, k, cache policy ...), a scale the rest; see `load`.
"""

from scalerl.recipes.load import ingredient_layers, load_resolved, recipe_names, resolve, scale_names
from scalerl.recipes.neighbours import neighbours
from scalerl.recipes.recipe import Recipe
from scalerl.recipes.tree import Change, applied, changes

__all__ = [
    "Change",
    "Recipe",
    "applied",
    "changes",
    "ingredient_layers",
    "load_resolved",
    "neighbours",
    "recipe_names",
    "resolve",
    "scale_names",
]
