"""How much memory serving takes, and what fits on one host: pure arithmetic, in GiB."""
