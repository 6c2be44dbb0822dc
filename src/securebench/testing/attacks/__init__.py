"""Attacks as data: candidates, packs, archives, records and trees that try to pass without a solution or to do harm."""
