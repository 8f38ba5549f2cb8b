"""Configurations of other libraries as recipes: what maps is translated at their values, what does not is named.

from scalerl.recipes.foreign import from_trl, from_verl

translation = from_trl("grpo_config.yaml", processes=8)
print(translation.to_toml())                      # a recipe: `scalerl recipe show` and `train` take it
for line in translation.left_out:
    print(line.key, line.value, line.note)
"""

from scalerl.recipes.foreign.reading import Line, Translation
from scalerl.recipes.foreign.trl import from_trl
from scalerl.recipes.foreign.verl import from_verl

__all__ = ["Line", "Translation", "from_trl", "from_verl"]
