"""Prompts from a file or a Hugging Face data set, graded by a grader of your choice."""

from pydantic import Field

from scalerl.graders import Grader
from scalerl.tasks import Task


class Prompts(Task):
    """A column of prompts and a column of gold answers."""

    path: str = Field(min_length=1, examples=["data/math.jsonl"])
    """A JSONL, Parquet or CSV file, a data set folder, or a name on the hub."""
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    grader: Grader = Field(examples=["math"])
    """Who compares a completion with the gold answer."""
