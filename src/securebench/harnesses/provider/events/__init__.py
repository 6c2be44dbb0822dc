"""The events that agent programs print while they work."""
