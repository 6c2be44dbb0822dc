"""Sandboxes: the contract, its drivers, and the policy wrapper."""
