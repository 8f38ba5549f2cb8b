"""The curriculum: which prompts are sampled (selectors) and which groups are trained on (filters)."""
