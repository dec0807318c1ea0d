"""The fleet at a glance, changing nothing: `pyinfra -y inventory/sparks.py tasks/status.py`.

With `--json` as the first option, one JSON document on standard output (docs/preflight.md).
"""

from roles._lib import report, runs

runs.observed(at_end=report.status())
