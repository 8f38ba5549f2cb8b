"""Accounting: what a run did and cost, as folds over its events.

A fold is a serialisable record with an `update` method. Its state is the record itself, goes into checkpoints, and is
a pure function of the entries seen: folding the rest of a log onto a restored state equals folding it all.
"""
