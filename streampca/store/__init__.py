"""Durable things: runs and ledgers."""
