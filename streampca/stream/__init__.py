"""Streams of rows: their interface, their state and its transitions, replay, and the loop that feeds them."""
