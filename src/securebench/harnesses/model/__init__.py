"""A model without an agent program: it answers in one turn, or works in a plain loop with a shell."""
