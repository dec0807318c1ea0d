"""How fast each recipe of each host serves, with 1 to 16 clients; a table, a document and a plot in bench/:

    pyinfra -y inventory/sparks.py tasks/bench.py [--data 'bench_concurrency=[1,4]']

With `--json` as the first option, the document on standard output instead (docs/bench.md).
"""

from pyinfra import host, logger

from roles._lib import benches, operations, runs

run = runs.observed(at_end=benches.at_end(), looks_only=True)
if run.blocked:
    operations.refuse(run.blocked, "bench", "a host that does not pass is not measured")
elif run.undeployed:
    logger.error(f"{host.print_prefix}{run.undeployed}")
    operations.refuse(run.undeployed, "bench", "what is not deployed cannot be measured")
elif run.plan.recipes:
    operations.measure("bench", "how fast it serves", lambda _, run: [benches.order(run)], benches.fetch)
