"""Test support: a scripted sandbox driver and model provider, attacks, and checks that every driver must pass."""
