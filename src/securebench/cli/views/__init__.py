"""How commands show their results: tables on a terminal, plain lines elsewhere."""
