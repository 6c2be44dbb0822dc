"""The agent program in a sandbox: its installation, its runtime, its files and its settings."""
