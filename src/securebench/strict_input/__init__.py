"""Strict reading of what others wrote: bytes to plain values, each fault with its line, column and pointer.

``files`` opens, ``json_text`` and ``yaml_text`` parse, ``models`` holds values to a pydantic model, and ``faults``
turns what they found into one :class:`~securebench.errors.ConfigError`. Nothing here knows what a pack is.
"""
