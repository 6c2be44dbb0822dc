"""The way out of a sandbox: a proxy to allowed domains, and a relay to one provider that holds the key."""
