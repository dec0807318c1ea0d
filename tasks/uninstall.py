"""Take off a host all that sparkfleet laid down, by its receipt, and nothing else; look at it with --dry first:

    pyinfra inventory/sparks.py tasks/uninstall.py --dry
    pyinfra -y inventory/sparks.py tasks/uninstall.py [--data 'uninstall_keeps=[]']

Weights and logs stay unless told, now or in a later run. One that was cut off is taken up by the next. A host that does
not pass preflight can be cleared, too.
"""

from pyinfra import host, logger

from roles._lib import operations, report, runs
from sparkfleet.desired import removal

run = runs.observed(at_end=report.table, removing=True)
found = run.seen.removal if run.seen else None
if found is None:
    operations.refuse(run.blocked)  # without a receipt that can be read nobody can say what is ours
elif found.lost:
    logger.error(f"{host.print_prefix}{found.lost}")
    operations.refuse(found.lost, "uninstall", "a host whose receipt is lost is left as it is")
else:
    words = (("remove", found.goes), ("keep", found.kept), ("leave", found.left))
    for line in [f"{word} {thing}" for word, things in words for thing in things]:
        logger.info(f"{host.print_prefix}{line}")
    if found.goes:
        operations.take_off("what sparkfleet laid down", lambda *_: [removal(run.plan.uninstall_keeps)])
    else:
        more = "more " if found.kept or found.left else ""
        logger.info(f"{host.print_prefix}nothing {more}of sparkfleet is on this host")
