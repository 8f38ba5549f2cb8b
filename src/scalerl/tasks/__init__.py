"""Tasks: prompts, their split, and the grader that belongs to them. The family's base."""

from pydantic import Field

from scalerl.core.components import Component


class Task(Component, family="tasks"):
    """Where prompts come from; every task can show that its gold answers score."""

    num_held_out: int = Field(default=1024, gt=0)
    """Prompts set apart for evaluation, never trained on."""
