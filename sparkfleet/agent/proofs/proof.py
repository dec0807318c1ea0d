"""Prove that a unit serves: its journal, its process, what it answers, how fast. The first failure is the outcome."""

import time
from dataclasses import replace

from .. import ports, receipt
from ..facts.source import lab
from ..process import environment_of
from ..progress import say
from ..services import journal
from ..services.units import look
from ..shapes import Author, Expectation, Prompt, Speed, UnitState, Verified
from . import canary, live, serving
from .canary import Answer
from .serving import Engine, NotServing, Silent

#: What speed is measured with; what it says does not matter, so it may go on beyond its end.
_TALK = Prompt("speed", "Tell me a long story about a lighthouse.", "", "", 0, stream=True)


def verify(expectation: Expectation) -> Verified:
    """What came of verifying ``expectation``, never an exception."""
    (state,) = look((expectation.unit,))
    first = expectation.prompts[0].ask if expectation.prompts else ""
    outcome = Verified(expectation.recipe, state.invocation, False, "", first, "", 0.0, round(time.time(), 1))
    engine = serving.engine_of(expectation, environment_of(state.pid))
    try:
        said = check(expectation, state, engine)
        answers = [_ask(expectation, prompt, engine) for prompt in expectation.prompts]
        outcome = replace(outcome, answer=answers[0].content if answers else "")
        rate = decode_rate(engine, expectation.model, expectation.speed.tokens)
        reason, note = judge_speed(expectation.speed, rate, is_spark=lab() is None)
        notes = "; ".join(filter(None, (said, note)))
        return replace(outcome, passed=not reason, reason=reason, note=notes, tokens_per_second=round(rate, 2))
    except NotServing as error:
        return replace(outcome, reason=str(error))


def remember(outcome: Verified, author: Author) -> None:
    """Record what came of a verification."""
    known = dict(receipt.read().get("verified", {}))
    receipt.record(author, verified=known | {outcome.recipe: outcome.__dict__})


def check(expectation: Expectation, state: UnitState, engine: Engine) -> str:
    """Raise NotServing when the right process does not serve the right model, or said while it started that it is not
    what it should be. What is returned is to be said of it all the same, if anything is.
    """
    if state.load == "not-found":
        raise NotServing(f"{expectation.unit} is not on this host: it is not deployed. Deploy first")
    try:
        found = serving.models(engine)
    except Silent as error:
        raise Silent(f"{error}{_idle(state)}") from None
    if list(found) != [expectation.model]:
        raise NotServing(f"expected the model {expectation.model}, found {', '.join(found) or 'none'}")
    if not ports.is_held_by(state.pid, expectation.port):
        raise NotServing(f"port {expectation.port}: another process answers there, not {expectation.unit}")
    if expectation.context and found[expectation.model] != expectation.context:
        raise NotServing(f"expected a context of {expectation.context} tokens, found {found[expectation.model]}")
    if said := live.complaint(expectation, state):
        raise NotServing(said)
    lines = journal.of_start(state.invocation)
    wrong, note = live.judge_journal(expectation.journal, lines, _proven(expectation, state))
    if wrong:
        raise NotServing(wrong)
    return note


def _idle(state: UnitState) -> str:
    """What is to be added where nobody answers: its unit does not run."""
    if state.active == "active":
        return ""
    return (
        f". {state.name} is {state.active} ({state.result}): see `journalctl -u {state.name}`; "
        f"`sudo systemctl start {state.name}` starts it"
    )


def _proven(expectation: Expectation, state: UnitState) -> bool:
    """Whether this very start has been verified before, and well."""
    known = receipt.verified(receipt.read())
    return any(
        (one.recipe, one.invocation, one.passed) == (expectation.recipe, state.invocation, True) for one in known
    )


def _ask(expectation: Expectation, prompt: Prompt, engine: Engine) -> Answer:
    answer = serving.chat(engine, expectation.model, prompt)
    said, how = " ".join(answer.content.split())[:60], "streamed" if prompt.stream else "at once"
    say(f"{expectation.recipe}: {prompt.name} ({how}): {answer.tokens} tokens, {said!r}")
    if wrong := canary.complaint(answer, prompt, expectation.parser):
        raise NotServing(f"{prompt.name}: asked {prompt.ask[:60]!r}: {wrong}")
    return answer


def decode_rate(engine: Engine, model: str, tokens: int) -> float:
    """Tokens a second of one stream while it decodes, after a warm-up; 0 where the stream does not tell.

    From the stream's own times: the first token, which takes the prompt in, does not count.
    """
    if not tokens:
        return 0.0
    for length in (min(16, tokens), tokens):
        prompt = replace(_TALK, max_tokens=length)
        answer = serving.chat(engine, model, prompt, ignore_eos=True)
    return _rate(answer)


def _rate(answer: Answer) -> float:
    if answer.tokens < 2 or answer.seconds <= 0:
        return 0.0
    if answer.seconds < answer.first / 2:
        # After a prompt of a dozen tokens the first takes no longer than the rest: the stream was held back and came
        # in one piece, so all that can be said is how long all of it took.
        return answer.tokens / (answer.first + answer.seconds)
    return (answer.tokens - 1) / answer.seconds


def judge_speed(wanted: Speed, rate: float, is_spark: bool) -> tuple[str, str]:
    """Why ``rate`` is a failure, or empty; and what else is to be said of it."""
    if wanted.spark and not is_spark:
        return "", "its speed is not judged: this is no Spark"
    if wanted.floor and rate < wanted.floor:
        causes = "; ".join(f"({n}) {cause}" for n, cause in enumerate(wanted.causes, 1))
        reason = (
            f"decodes {rate:.1f} tok/s, expected at least {wanted.floor:g}. Known causes, likeliest first: {causes}"
        )
        return reason, ""
    if wanted.ceiling and rate >= 0.8 * wanted.ceiling:
        return "", f"{rate / wanted.ceiling:.0%} of what memory bandwidth allows ({wanted.ceiling:g} tok/s)"
    return "", ""
