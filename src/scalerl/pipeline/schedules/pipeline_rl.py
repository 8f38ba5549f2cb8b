"""PipelineRL-k: weights are pushed after every step and unfinished completions go on with them (arXiv 2509.19128).

The trainer waits rather than let a completion grow older than k versions; k = 0 is synchronous training.
"""

from scalerl.pipeline.schedules import Schedule


class PipelineRl(Schedule):
    """Streaming generation, in-flight updates; it has nothing to set."""
