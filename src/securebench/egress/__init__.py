"""Egress from sandboxes: a proxy to allowed domains, and a relay to one model provider. The relay adds the API key."""
