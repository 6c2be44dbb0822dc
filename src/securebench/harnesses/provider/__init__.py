"""Harnesses of agent programs that call a model provider: Codex and Claude Code."""
