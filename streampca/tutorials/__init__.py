"""Tutorials: scripts to read from top to bottom and to run, in seconds, cell by cell (``# %%``) if you like.

``python -m streampca.tutorials.river_user``, ``sklearn_user`` and ``privacy_officer``.
"""
