"""Stateful algorithms: one a file, driven by the Stream."""
