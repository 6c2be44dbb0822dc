"""Measurements of SecureBench and other evaluation harnesses on one trivial task."""
