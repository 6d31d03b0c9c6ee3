"""Every error streampca raises on purpose.

Each message names the parameter or row, the value, and the remedy. All of
them are raised before any state changes: nothing is absorbed, no noise is
drawn and no budget is spent by a call that raises one.
"""

from __future__ import annotations


class StreamPCAError(Exception):
    """Base of all errors raised by streampca."""


class BadParameter(StreamPCAError, ValueError):
    """A parameter is outside its domain."""


class BadRow(StreamPCAError, ValueError):
    """A row cannot be admitted: wrong shape, not finite, not a number."""


class SourceError(StreamPCAError, ValueError):
    """A file or table cannot be read as rows."""


class HorizonReached(StreamPCAError, RuntimeError):
    """The processor was calibrated for fewer rows than it was given."""


class BudgetExhausted(StreamPCAError, RuntimeError):
    """The privacy budget does not cover what was asked for."""


class NoRelease(StreamPCAError, RuntimeError):
    """Something was asked of a release that does not exist or does not hold it."""


class StoreCorrupt(StreamPCAError, RuntimeError):
    """A durable run is damaged or was written by something else."""


class StoreLocked(StreamPCAError, RuntimeError):
    """Another process or stream writes to the durable run."""


class StoreForked(StreamPCAError, RuntimeError):
    """A durable run was copied or set back, and another copy may have gone on: to go on here is a second run."""


class StoreUnwritable(StreamPCAError, RuntimeError):
    """The rows cannot be made durable: the disk is full, or may not be written to."""


class WrongKey(StreamPCAError, ValueError):
    """The key or passphrase does not open the durable run, or its key file is missing or unsafe."""
