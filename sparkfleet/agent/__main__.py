"""``python3 agent.pyz VERB``: one verb, its order as JSON on standard input.

    observe            answer a Question with the whole observed state; changes nothing, unless the question says that
                       the agent may settle on a host that passed preflight
    apply ROLE         make an order of that role true
    audit              answer which layers of a model are stored how, from its files' headers; changes nothing
    benched FILE       answer what the last ``apply bench`` measured
    serve              hand out wheels to other hosts until nobody listens any more
    serve-model        hand out a model, likewise
    served             the port at which that is done
    fetch              fetch a model from a hub, as told on standard input (the agent runs this itself)
    guard FILE COMMAND...
                       become COMMAND if all is as FILE says (the first step of a unit's start)
    ready ADDRESS PORT MODEL PID
                       wait until the engine serves MODEL (the last step of a unit's start)

Exit status: 0 done, 1 a person must mend something (said on standard error), 75 ended because nobody listens any more,
78 the guard refused.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from . import lifeline, wire
from .errors import HostError
from .shapes import (
    AccountOrder,
    Author,
    DeepOrder,
    DriverOrder,
    GarbageOrder,
    Question,
    Release,
    RemovalOrder,
    RollbackOrder,
    ServeModelOrder,
    ServeOrder,
    ServiceOrder,
    VerifyOrder,
    VocabOrder,
    WeightsOrder,
    WheelsOrder,
)

#: Goes before the observed state, so that it is found among whatever a login shell prints.
ANSWER = "sparkfleet-observed: "


def main(arguments: list[str]) -> int:
    """Run one verb; the exit status."""
    for stream in (sys.stdout, sys.stderr):  # whatever the host's locale: the other end reads UTF-8
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        verb, *rest = arguments or ["help"]
        return _VERBS[verb](*rest)
    except HostError as error:
        print(wire.legible(str(error)), file=sys.stderr, flush=True)
        return 1
    except wire.WireError as error:
        print(f"agent: order not understood ({error}).", file=sys.stderr, flush=True)
        return 1
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        print(
            f"agent: {type(error).__name__}: {error} (at {where}). This is a defect of sparkfleet, or a file on this "
            f"host that it does not expect; please report it. Nothing more was changed.",
            file=sys.stderr,
            flush=True,
        )
        return 70  # EX_SOFTWARE


def _observe() -> int:
    from .observe import HOME, observe, own_code

    os.umask(0o022)
    question = wire.decode(Question, sys.stdin.read())
    observed = observe(question)
    if question.adopt and not observed.blocked:
        code = own_code()
        new = hashlib.sha256(code).hexdigest() != observed.agent
        if new or not os.path.exists(sys.path[0]):
            from .settle import settle

            settle(code, HOME, sys.path[0])
        if new:
            observed = observe(question)
    print(ANSWER + wire.tell(observed), flush=True)
    return 0


def _audit() -> int:
    from .audit.shapes import AuditQuestion
    from .audit.tally import audit

    print(ANSWER + wire.tell(audit(wire.decode(AuditQuestion, sys.stdin.read()))), flush=True)
    return 0


def _benched(path: str) -> int:
    from .bench.run import results

    print(ANSWER + wire.tell(results(path)), flush=True)
    return 0


def _apply(role: str) -> int:
    from . import account, lock
    from .bench import run as bench
    from .bench.shapes import BenchOrder
    from .checks import driver_install
    from .models import vocab, weights
    from .proofs import verify
    from .releases import deep, garbage, release, seal
    from .services import removal, service, switch
    from .supply import wheels

    roles: dict[str, tuple[type[Any], Callable[[Any, Author], None]]] = {
        "driver": (DriverOrder, driver_install.apply),
        "account": (AccountOrder, account.apply),
        "wheels": (WheelsOrder, wheels.apply),
        "engine": (Release, release.apply),
        "patches": (seal.PatchOrder, seal.apply),
        "vocab": (VocabOrder, vocab.apply),
        "weights": (WeightsOrder, weights.apply),
        "service": (ServiceOrder, service.apply),
        "verify": (VerifyOrder, verify.apply),
        "deep": (DeepOrder, deep.apply),
        "rollback": (RollbackOrder, switch.apply),
        "gc": (GarbageOrder, garbage.apply),
        "uninstall": (RemovalOrder, removal.apply),
        "bench": (BenchOrder, bench.apply),
    }
    shape, apply = roles[role]
    author_line, order_line = sys.stdin.read().splitlines()
    author = wire.decode(Author, author_line)
    order = wire.decode(shape, order_line)
    lifeline.watch()
    with lock.held(author, role):
        apply(order, author)
    return 0


def _serve() -> int:
    from .supply.wheel_server import serve

    order = wire.decode(ServeOrder, sys.stdin.read())
    lifeline.watch()
    serve(order)
    return 0


def _serve_model() -> int:
    from .supply.wheel_server import serve_model

    order = wire.decode(ServeModelOrder, sys.stdin.read())
    lifeline.watch()
    serve_model(order)
    return 0


def _served() -> int:
    from .supply.wheel_server import port_of

    token = sys.stdin.read().strip()
    lifeline.watch()
    print(f"{ANSWER}{port_of(token)}", flush=True)
    return 0


def _fetch() -> int:
    from .models.fetch import main

    return main()


def _guard(path: str, *command: str) -> int:
    from .services.guard import guard

    return guard(path, list(command))


def _ready(address: str, port: str, model: str, pid: str) -> int:
    from .proofs.serving import Engine, wait_until_ready

    key = os.environ.get("VLLM_API_KEY", "")  # of the unit's environment, as the engine has it
    wait_until_ready(Engine(int(port), key, address), model, int(pid))
    return 0


def _help() -> int:
    print(__doc__)
    return 0


_VERBS: dict[str, Callable[..., int]] = {
    "observe": _observe,
    "audit": _audit,
    "benched": _benched,
    "apply": _apply,
    "serve": _serve,
    "serve-model": _serve_model,
    "served": _served,
    "fetch": _fetch,
    "guard": _guard,
    "ready": _ready,
    "help": _help,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
