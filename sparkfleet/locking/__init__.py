"""Makes an engine's lock and its knowledge: ``sparkfleet lock``."""
