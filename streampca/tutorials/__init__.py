"""Tutorials: scripts of a few seconds, in cells (``# %%``).

``python -m streampca.tutorials.river_user``, ``sklearn_user`` and ``privacy_officer``.
"""
