"""What holds for every test: a busy machine fails none, and property tests draw the same examples each time.

`make test-all` draws new ones (HYPOTHESIS_PROFILE=explore).
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True, scope="session")
def bases(tmp_path_factory):
    """Bases are made once for all workers of a session, and never in the user's cache; processes that tests start see it too."""
    folder: Path = tmp_path_factory.getbasetemp()
    os.environ["SCALERL_CACHE"] = str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "scalerl-cache")
