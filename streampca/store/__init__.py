"""Durable runs: see `streampca.store.store`."""

from streampca.store.store import Store

__all__ = ["Store"]
