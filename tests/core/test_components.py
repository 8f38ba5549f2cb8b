"""Components: one file is a component, found by its name, here and in plug-ins."""

import json
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from scalerl.core.components import Component, Settings
from scalerl.core.errors import UnknownNameError, UsageError
from scalerl.objective.length_controls import LengthControl
from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.objective.losses.reinforce import Reinforce
from tests.plugins import install

NEW_LOSS = '''
"""A loss of somebody else."""

from scalerl.objective.losses import Loss


class Mine(Loss):
    """Twice the usual."""

    factor: float = 2.0
    """What the gradient is multiplied by."""

    def objective(self, log_probs, behaviour, advantages, mask):
        """REINFORCE, louder."""
        return self.factor * (log_probs * advantages).where(mask, 0.0)
'''


class Holder(BaseModel):
    loss: Loss
    more: tuple[Loss, ...] = ()


def test_a_component_is_named_by_its_file_and_selected_by_name_or_table():
    assert Cispo.name() == "cispo"
    assert Loss.family.select("cispo") == Cispo()
    assert Loss.family.select({"type": "cispo", "cap": 8}) == Cispo(cap=8.0)
    assert Cispo(cap=8.0).selection() == {"type": "cispo", "cap": 8.0}


def test_a_field_annotated_with_the_base_reads_and_writes_selections():
    holder = Holder.model_validate({"loss": "reinforce", "more": [{"type": "cispo", "cap": 4.0}]})
    assert holder == Holder(loss=Reinforce(), more=(Cispo(cap=4.0),))
    assert holder.model_dump() == {"loss": {"type": "reinforce"}, "more": ({"type": "cispo", "cap": 4.0},)}
    assert Holder.model_validate(holder.model_dump()) == holder


def test_listing_imports_no_component():
    code = (
        "import sys, json; from scalerl.objective.losses import Loss; names = Loss.family.names();"
        "print(json.dumps([names, [m for m in sys.modules if m.startswith('scalerl.objective.losses.')]]))"
    )
    names, imported = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert {"cispo", "dapo", "grpo", "gspo", "reinforce"} <= set(names)
    assert imported == []


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="there is no loss 'cisspo'; did you mean 'cispo'"):
        Loss.family.get("cisspo")


@pytest.mark.parametrize("selection", [{}, {"cap": 5}, {"type": 3}])
def test_a_selection_without_type_is_refused(selection):
    with pytest.raises(UsageError, match="'type' is missing"):
        Loss.family.select(selection)


@pytest.mark.parametrize("settings", [{"cap": -1.0}, {"cap": True}, {"cap": "much"}, {"capp": 5.0}])
def test_settings_are_checked(settings):
    with pytest.raises(ValidationError):
        Holder.model_validate({"loss": {"type": "cispo", **settings}})
    with pytest.raises(UsageError, match=r"^loss 'cispo': its capp? cannot be used"):
        Loss.family.select({"type": "cispo", **settings})


def test_a_missing_setting_is_one_sentence():
    with pytest.raises(
        UsageError, match=r"length control 'penalty': its limit_tokens cannot be used .*; write \{'type': 'penalty', 'limit_t"
    ):
        LengthControl.family.select("penalty")


@pytest.mark.parametrize("value", [[0.5, True], (False, 0.5), True, [0.5, float("nan")], [float("inf"), 0.5]])
def test_numbers_are_finite_and_no_booleans_inside_tuples_either(value):
    class Pair(Settings):
        both: tuple[float, float]

    assert Pair(both=[1, 0.5]).both == (1.0, 0.5)
    with pytest.raises(ValidationError):
        Pair(both=value)


def test_components_are_frozen():
    with pytest.raises(ValidationError):
        Cispo().cap = 3.0


def test_one_file_in_a_plugin_package_is_a_component(tmp_path, monkeypatch):
    install(
        tmp_path, "someone", files={"losses/mine.py": NEW_LOSS}, entry_points={"scalerl.losses": "someone.losses"}, monkeypatch=monkeypatch
    )
    assert "mine" in Loss.family.names()
    assert Holder.model_validate({"loss": {"type": "mine", "factor": 3}}).loss.selection() == {"type": "mine", "factor": 3.0}
    # Another file needs no further registration.
    (tmp_path / "someone" / "losses" / "yours.py").write_text(NEW_LOSS.replace("class Mine", "class Yours"))
    assert Loss.family.get("yours").name() == "yours"


def test_an_entry_point_may_name_a_single_module(tmp_path, monkeypatch):
    install(tmp_path, "single", files={"mine.py": NEW_LOSS}, entry_points={"scalerl.losses": "single.mine"}, monkeypatch=monkeypatch)
    assert Loss.family.get("mine")().factor == 2.0


def test_a_package_without_modules_holds_no_components(tmp_path, monkeypatch):
    before = Loss.family.names()
    install(tmp_path, "bare", files={"losses/_hidden.py": ""}, entry_points={"scalerl.losses": "bare.losses"}, monkeypatch=monkeypatch)
    assert Loss.family.names() == before


@pytest.mark.parametrize("text", ["import no_such_dependency", "1 / 0", "def", "raise RuntimeError('two\\nlines')"])
def test_a_plugin_that_cannot_be_imported_is_named(tmp_path, monkeypatch, text):
    install(tmp_path, "broken", files={"losses/odd.py": text}, entry_points={"scalerl.losses": "broken.losses"}, monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match=r"^broken\.losses\.odd: this plug-in cannot be imported \(.*\); mend or uninstall it$"):
        Loss.family.get("odd")
    (tmp_path / "broken" / "__init__.py").write_text(text)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    monkeypatch.delitem(sys.modules, "broken.losses", raising=False)
    with pytest.raises(UsageError, match=r"broken\.losses: this plug-in cannot be imported"):
        Loss.family.get("losses")


def test_a_plugin_cannot_take_a_name_that_is_taken(tmp_path, monkeypatch):
    install(
        tmp_path, "thief", files={"losses/cispo.py": NEW_LOSS}, entry_points={"scalerl.losses": "thief.losses"}, monkeypatch=monkeypatch
    )
    with pytest.raises(UsageError, match=r"thief\.losses\.cispo: two losses are called 'cispo'"):
        Loss.family.get("cispo")


@pytest.mark.parametrize("text", ['"""Nothing."""\n', NEW_LOSS + "\n\nclass Other(Mine):\n    pass\n"])
def test_a_file_defines_exactly_one_component(tmp_path, monkeypatch, text):
    install(tmp_path, "wrong", files={"losses/odd.py": text}, entry_points={"scalerl.losses": "wrong.losses"}, monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match=r"[02] classes derive from Loss; define exactly one"):
        Loss.family.get("odd")


def test_a_family_says_what_one_of_it_is_called():
    assert Loss.family.kind == "loss"
    assert issubclass(Loss, Component)
