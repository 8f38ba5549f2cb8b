"""Records: what the rooms pass to each other. Frozen, with shapes and units in their docstrings."""
