"""The grader that is not ready says so."""

import pytest

from scalerl.core.errors import UsageError
from scalerl.graders.math import Math
from scalerl.records.rollout import Prompt
from tests.graders.completions import completion


def test_it_refuses_in_one_sentence_and_names_what_works():
    with pytest.raises(UsageError) as refused:
        Math().grade(Prompt("1", "prompts", "1 + 1", (), "2"), completion("2"))
    assert str(refused.value) == "grader 'math': it does not work yet; choose 'exact' for answers of one spelling"
