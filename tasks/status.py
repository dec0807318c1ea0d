"""The fleet at a glance, changing nothing: `pyinfra -y inventory/sparks.py tasks/status.py [--data report=FILE.html]`.

With `--json` as the first option, one JSON document on standard output (docs/status.md). Again and again, also without
a terminal: `sparkfleet status inventory/sparks.py --watch 10`.
"""

from pyinfra import host

from roles._lib import report, runs

runs.observed(at_end=report.status(host.data.report), live=True, looks_only=True)
