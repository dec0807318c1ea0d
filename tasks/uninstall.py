"""Take off a host all that sparkfleet laid down, by its receipt, and nothing else; look at it with --dry first:

    pyinfra inventory/sparks.py tasks/uninstall.py --dry
    pyinfra -y inventory/sparks.py tasks/uninstall.py [--data 'uninstall_keeps=[]']

Weights and logs stay unless told. A host that does not pass preflight can be cleared, too.
"""

from pyinfra import host, logger

from roles._lib import operations, report, runs
from sparkfleet.desired import removal

run = runs.observed(at_end=report.table)
if not run.seen or any(finding.rule == "receipt" for finding in run.seen.findings):
    operations.refuse(run.blocked)  # without a receipt that can be read nobody can say what is ours
elif run.seen.receipt is None:
    logger.info(f"{host.print_prefix}nothing of sparkfleet is on this host")
else:
    order = removal(run.plan.uninstall_keeps)
    things = (*run.seen.receipt.units, *(f"release {one.name}" for one in run.seen.releases), *order.trees)
    for thing in things:
        logger.info(f"{host.print_prefix}remove {thing}")
    operations.take_off("what sparkfleet laid down", lambda *_: [order])
