"""Attacks that the scripted model runs in the agent's sandbox. Python 3.9 or later, standard library only."""
