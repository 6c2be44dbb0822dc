"""Harnesses of agents that use a model provider: declared agents such as Codex and Claude Code."""
