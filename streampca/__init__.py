"""Streaming, differentially private PCA."""

__version__ = "0.1.0"
