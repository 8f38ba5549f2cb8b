"""The error tree: every error survives a process boundary, and says what, where and what to do."""

import pickle

import pytest

from scalerl.core import errors
from scalerl.core.errors import ScalerlError, did_you_mean, unknown_name

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ScalerlError)]


@pytest.mark.parametrize("kind", TREE)
def test_errors_pickle_with_everything_they_say(kind):
    error = kind("it broke", where="recipe.toml: batch", remedy="mend it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.what, copy.where, copy.remedy) == ("it broke", "recipe.toml: batch", "mend it")
    assert str(copy) == str(error) == "recipe.toml: batch: it broke; mend it"


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [("ScalerlError", 1), ("UsageError", 2), ("RecipeError", 2), ("DataError", 3), ("CorruptLogError", 3), ("BudgetError", 5)],
)
def test_exit_codes(kind, exit_code):
    assert getattr(errors, kind).exit_code == exit_code


def test_the_docstring_draws_the_whole_tree():
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in TREE)


def test_a_misspelt_name_gets_the_nearest():
    assert did_you_mean("cisspo", ["dapo", "cispo", "gspo"]).startswith("did you mean 'cispo'")
    assert did_you_mean("CISPO", ["dapo", "cispo"]) == "did you mean 'cispo'?"


def test_a_name_near_nothing_gets_the_list():
    assert str(unknown_name("loss", "xyz", ["b", "a"])) == "there is no loss 'xyz'; choose one of a, b"
    assert did_you_mean("xyz", []) == "there are none to choose from"
