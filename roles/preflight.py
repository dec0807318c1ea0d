"""Is it a Spark, is the driver good, is there room? Stops a host before anything is changed on it."""

from pyinfra import host, logger

from roles._lib import driver, operations, runs, wheel_sources


def check() -> None:
    """Observe this host; one that must not be changed is reported with the remedy and fails, the others go on."""
    run = runs.observed(may_settle=True)
    run.trouble = run.trouble or wheel_sources.obstacle(run)
    for finding in run.seen.findings if run.seen else ():
        if finding.severity == "warn":
            logger.warning(f"{host.print_prefix}{finding.what}. {finding.remedy}.")
    for note in run.plan.notes if run.pending() else ():
        logger.info(f"{host.print_prefix}{note}")
    if run.blocked:
        for line in run.blocked.splitlines():
            logger.error(f"{host.print_prefix}{line}")
        if driver.mends(run):
            driver.mend(run)
        else:
            operations.refuse(run.blocked)
