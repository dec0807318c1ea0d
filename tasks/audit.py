"""How each model's layers are quantised, and how fast that lets it be, from its files' headers; no engine is asked:

pyinfra -y inventory/sparks.py tasks/audit.py      # --json as the first option: one JSON document
"""

from roles._lib import audits, runs

audits.look(runs.observed(at_end=audits.at_end(), looks_only=True))
