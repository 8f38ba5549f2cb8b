"""From a table of a log's columns to curves: what all formats share.

`table` holds the columns, `choice` what the user asked for, `vocabulary` what the training frameworks call things
(`vocabulary.toml`), `evaluations` tells data sets apart, `compute` and `reward` pick the columns, `counting` tells totals from
amounts, `lineage` follows a run through its restarts, and `assemble` puts the curves together.
"""
