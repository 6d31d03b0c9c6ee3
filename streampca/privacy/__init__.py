"""Budgets, guarantees, noise, and the outlet, where exact values meet noise."""
