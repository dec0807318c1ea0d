"""Proof that an engine serves: its process, its journal, what it answers, how fast."""
