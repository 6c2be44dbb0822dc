"""The program that runs in the sandbox for a model without an agent program.

It uses only the standard library of Python 3.11, and calls the model through the relay. In the families that are
answered in one turn, it never runs what the model writes. In the others it is a plain baseline for agents: one shell
tool, and no memory except the conversation.
"""
