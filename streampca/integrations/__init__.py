"""Foreign interfaces, at the rim: nothing here is imported by the rest.

``streampca.integrations.river`` and ``streampca.integrations.sklearn`` (extra ``sklearn``),
``pool`` (extra ``parquet``), ``spark`` (extra ``spark``).
"""
