"""The provider relay: it checks each API request before forwarding it, and adds the key outside the sandbox."""
