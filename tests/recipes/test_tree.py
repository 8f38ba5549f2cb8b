"""Trees: layering, assignment, and changes that can be applied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.recipes.tree import Change, applied, assigned, changes, layered, show, with_defaults

KEYS = st.sampled_from(["a", "b", "c", "type"])
LEAVES = st.one_of(
    st.booleans(),
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
)
TREES = st.dictionaries(KEYS, st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=4), max_leaves=8), max_size=4)


@given(TREES, TREES)
def test_the_changes_of_two_trees_applied_to_one_give_the_other(left, right):
    assert applied(left, changes(left, right)) == right


@given(TREES)
def test_a_tree_has_no_changes_to_itself_and_layers_onto_itself(tree):
    assert list(changes(tree, tree)) == []
    assert layered(tree, tree) == tree
    assert layered({}, tree) == tree
    assert layered(tree, {}) == tree


def test_layering_merges_settings_of_one_component_and_replaces_another():
    below = {"loss": {"type": "cispo", "cap": 5.0}, "batch": {"group": 16}}
    assert layered(below, {"loss": {"cap": 4.0}}) == {"loss": {"type": "cispo", "cap": 4.0}, "batch": {"group": 16}}
    assert layered(below, {"loss": {"type": "cispo"}})["loss"] == {"type": "cispo", "cap": 5.0}
    assert layered(below, {"loss": "cispo"})["loss"] == {"type": "cispo", "cap": 5.0}
    assert layered(below, {"loss": {"type": "dapo"}})["loss"] == {"type": "dapo"}
    assert layered(below, {"loss": "dapo"})["loss"] == {"type": "dapo"}
    assert layered({"loss": "cispo"}, {"loss": {"cap": 4.0}})["loss"] == {"type": "cispo", "cap": 4.0}


def test_another_component_keeps_what_its_family_shares_at_that_place_only():
    below = {"run": {"engine": {"type": "embedded", "kv": "drain", "own": 1}}, "engine": {"type": "embedded", "kv": "drain"}}
    shared = {("run", "engine"): {"kv", "slots"}}
    for another in ("vllm", {"type": "vllm"}):
        merged = layered(below, {"run": {"engine": another}, "engine": another}, shared=shared)
        assert merged == {"run": {"engine": {"type": "vllm", "kv": "drain"}}, "engine": {"type": "vllm"}}
    assert layered(below, {"run": {"engine": {"type": "vllm", "kv": "keep"}}}, shared=shared)["run"]["engine"]["kv"] == "keep"


@given(TREES, TREES)
def test_what_is_shared_changes_nothing_where_the_types_agree(left, right):
    shared = {("a",): {"b", "c"}}
    assert layered(left, left, shared=shared) == left
    assert applied(left, changes(left, layered(left, right, shared=shared))) == layered(left, right, shared=shared)


def test_defaults_reach_the_selected_component_only_and_never_win():
    defaults = {"objective": {"loss": {"gspo": {"clip": 0.2}, "cispo": {"cap": 4.0}}}, "filters": {"zero": {"refill": True}}}
    assert with_defaults({"objective": {"loss": "gspo"}}, defaults) == {"objective": {"loss": {"type": "gspo", "clip": 0.2}}}
    assert with_defaults({"objective": {"loss": {"type": "cispo", "cap": 8.0}}}, defaults)["objective"]["loss"]["cap"] == 8.0
    assert with_defaults({"objective": {"loss": "dapo"}}, defaults) == {"objective": {"loss": "dapo"}}
    assert with_defaults({"filters": ["zero", {"type": "other"}]}, defaults) == {
        "filters": [{"type": "zero", "refill": True}, {"type": "other"}]
    }


def test_assignment_reaches_into_tables_and_lists():
    tree = {"a": {"b": 1}, "filters": [{"type": "zero"}], "loss": "cispo"}
    assert assigned(tree, "a.b", 2)["a"] == {"b": 2}
    assert assigned(tree, "a.b", None)["a"] == {}
    assert assigned(tree, "filters.0.refill", True)["filters"] == [{"type": "zero", "refill": True}]
    assert assigned(tree, "loss.cap", 4.0)["loss"] == {"type": "cispo", "cap": 4.0}
    assert tree == {"a": {"b": 1}, "filters": [{"type": "zero"}], "loss": "cispo"}
    assert assigned({"a": [1, 2, 3]}, "a.1", None) == {"a": [1, 3]}
    with pytest.raises(KeyError, match=r"filters\.1"):
        assigned(tree, "filters.1", None)
    with pytest.raises(KeyError, match=r"filters\.-1"):
        assigned(tree, "filters.-1", None)
    with pytest.raises(KeyError, match=r"filters\.1"):
        assigned(tree, "filters.1.refill", True)


def test_changes_read_as_people_write_them():
    assert str(Change("loss", {"type": "cispo", "cap": 5.0}, {"type": "reinforce"})) == "loss: cispo(cap=5.0) -> reinforce"
    assert show([{"type": "zero", "refill": False}]) == "[zero(refill=false)]"
    assert show(None) == "none"
    assert show({"a": 1}) == "(a=1)"
