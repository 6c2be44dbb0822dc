"""Importers: they convert a public benchmark, as its authors publish it, to a pack."""
