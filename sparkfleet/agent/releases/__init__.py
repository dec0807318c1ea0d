"""Releases of engines: built, patched and sealed, compared with what was sealed, removed."""
