"""Egress from sandboxes: a proxy to allowed domains, and a relay, which adds the API key, to one model provider."""
