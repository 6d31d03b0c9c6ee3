"""Printed algorithms that are not private as printed: no guarantee, for tests and teaching."""
