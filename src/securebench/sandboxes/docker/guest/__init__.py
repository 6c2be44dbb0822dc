"""What runs in containers of the framework's own. Sent as source: nothing of it is imported there."""
