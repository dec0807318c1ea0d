"""Remove releases that are not needed: all but those in use, the last good one and `keep_releases` more.

pyinfra -y inventory/sparks.py tasks/gc.py [--data keep_releases=0]      # --dry first: what would go
"""

from pyinfra import host, logger

from roles._lib import operations, report, runs
from sparkfleet.desired import garbage
from sparkfleet.going_back import kept, needless

run = runs.observed(at_end=report.table)
if run.blocked or not run.seen:
    operations.refuse(run.blocked)
else:
    names = [release.name for release in run.plan.releases]
    stays, gone = (look(run.seen, names, run.plan.keep_releases) for look in (kept, needless))
    for name, why in stays.items():
        logger.info(f"{host.print_prefix}keep release {name}: {why}")
    for release in gone:
        logger.info(f"{host.print_prefix}remove release {release.name}: {release.size / 1e9:.1f} GB")
    if not gone:
        logger.info(f"{host.print_prefix}there is nothing to remove")
    else:
        operations.order("gc", "releases that are not needed", lambda *_: [garbage(gone)])
