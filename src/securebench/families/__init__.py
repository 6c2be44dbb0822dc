"""Families: one file each, the single source of a family's fields, lanes and candidate kind."""
