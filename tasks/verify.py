"""Ask every recipe of every host its question now: `pyinfra -y inventory/sparks.py tasks/verify.py`.

With `--data deep=true` every file of the releases in use is read first and compared by hash: a minute or two.
"""

from pyinfra import host, logger

from roles import verify
from roles._lib import operations, report, runs

run = runs.observed(at_end=report.table, looks_only=True)
if run.blocked:
    operations.refuse(run.blocked)
elif run.undeployed:
    logger.error(f"{host.print_prefix}{run.undeployed}")
    operations.refuse(run.undeployed, "verify", "what is not deployed cannot be asked")
else:
    if host.data.deep:
        verify.read_all()
    verify.ask()
