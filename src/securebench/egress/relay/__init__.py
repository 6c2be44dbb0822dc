"""The relay: one provider's API, read before it is passed on, with the key put in outside of the sandbox."""
