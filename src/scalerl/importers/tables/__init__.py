"""From a table of a log's columns to curves: what all formats share.

`table` holds the columns, `choice` what the user asked for, `vocabulary` what the training frameworks call things
(`vocabulary.toml`), `compute` and `reward` pick the columns, `lineage` follows a run through its restarts, and `assemble`
puts the curves together.
"""
