"""Attacks that the scripted model runs in the agent's sandbox. Python 3.8, standard library only."""
