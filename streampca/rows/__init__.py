"""Rows on their way to an algorithm: the protocol of sources, feature names, admission, and private bounds."""
