"""Go back to what served before, or to a release by name, and ask it:

    pyinfra -y inventory/sparks.py tasks/rollback.py [--data rollback_to=vllm-0.20.1]

The inventory says what it said: the next deploy goes forward again unless `engine` or `recipes` are changed there.
"""

from pyinfra import host, logger

from roles._lib import operations, report, runs
from sparkfleet.agent.shapes import RollbackOrder
from sparkfleet.errors import UserError
from sparkfleet.going_back import target

run = runs.observed(at_end=report.table)
if run.blocked or not run.seen:
    operations.refuse(run.blocked)
else:
    try:
        back = target(run.seen, run.plan.rollback_to)
        for unit, release in back.releases.items():
            logger.info(f"{host.print_prefix}back to {unit} from release {release}")
        operations.order("rollback", "what served before serves again", lambda *_: [RollbackOrder(back.units)])
    except UserError as error:
        logger.error(f"{host.print_prefix}{error}")
        operations.refuse(str(error), "rollback", "there is nothing to go back to")
