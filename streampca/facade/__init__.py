"""Calls for one whole table, above the streams, sources and plans that they use."""
