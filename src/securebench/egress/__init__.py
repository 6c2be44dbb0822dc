"""Egress from sandboxes: a proxy to allowed domains, and a relay to one model provider that adds the API key."""
