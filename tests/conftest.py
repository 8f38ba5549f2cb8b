"""What holds for every test: a busy machine fails none, and property tests draw the same examples each time.

`make test-all` draws new ones (HYPOTHESIS_PROFILE=explore).
"""

import os

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
