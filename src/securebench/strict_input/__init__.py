"""Strict parsing of files from users: bytes to plain values.

Each fault is located by line, column and JSON pointer, as exactly as possible.

``files`` opens, ``json_text`` and ``yaml_text`` parse, ``models`` validates values against a pydantic model, and
``faults`` collects all faults into one :class:`~securebench.errors.ConfigError`. Nothing here depends on packs.
"""
