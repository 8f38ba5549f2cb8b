"""`make mutation` on a module whose mutants can be counted by hand: killed, survived and never reached."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "mutation.py"
AMOUNTS = '''"""Amounts."""


class Purse:
    """Holds an amount."""

    limit: int = 3

    def doubled(self, amount):
        """Twice the amount."""
        return 2 * amount


def bounded(amount):
    """An amount with its bound."""
    return amount.clamp()


def larger(amounts):
    """The largest."""
    return max(amounts)


def opposite(amount):
    """No test asks for it."""
    return -amount
'''
TEST = """from tiny.amounts import Purse, bounded, larger


class Clamped:
    def clamp(self):
        return "bounded"


def test_amounts():
    assert Purse().doubled(1) == 2
    assert bounded(Clamped()) == "bounded"
    assert larger([1, 2]) == 2
"""


def test_what_a_test_notices_is_killed_and_the_rest_is_listed(tmp_path):
    """2 as 3, clamp left out, max as min and max(None) are noticed; 2 / 1 is 2 as well, and nobody asks for the opposite."""
    files = {"src/tiny/__init__.py": "", "src/tiny/amounts.py": AMOUNTS, "tests/test_amounts.py": TEST, "pyproject.toml": ""}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, str(SCRIPT), "--root", str(tmp_path), "--mutate", "src/tiny/*", "--tests", "tests", "--least", "67"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-4:] == [
        "   4 / 6    src/tiny/amounts.py",
        "   4 / 6    killed, 66.7 %; at least 67 % are asked for",
        "src/tiny/amounts.py:11: return 2 * amount -> return 2 / amount  [survived]",
        "src/tiny/amounts.py:26: return -amount -> return +amount  [no tests]",
    ]
    assert done.returncode == 1
    assert (tmp_path / "src/tiny/amounts.py").read_text() == AMOUNTS
    assert not (tmp_path / "mutants").exists()
