"""Any data set of the package reasoning-gym by its name, made on the fly from a seed."""

from pydantic import Field

from scalerl.tasks import Task


class ReasoningGym(Task):
    """Procedural puzzles with the grader that the data set brings."""

    dataset: str = Field(min_length=1, examples=["basic_arithmetic"])
    """Name of the data set, e.g. `basic_arithmetic`."""
    num_prompts: int = Field(default=4096, gt=0)
    """Training prompts to make."""
