"""Is what a model says what a healthy model says? Pure judgement of answers; ``serving`` gets them."""

import re
from dataclasses import dataclass

from ..shapes import Prompt

#: Words of a run or a loop that are too few to be one: poems and tables repeat a little.
SHORTEST_RUN = 8
SHORTEST_LOOP = 24

#: How often a loop must have come round.
ROUNDS = 4


@dataclass(frozen=True)
class Answer:
    """One chat completion: ``content`` is what the user sees, ``reasoning`` what a parser set apart.

    ``first`` is the time from the request to the first token of a stream, ``seconds`` that from there to the last; 0
    of an answer that came at once.
    """

    content: str
    reasoning: str = ""
    finish: str = ""
    tokens: int = 0
    first: float = 0.0
    seconds: float = 0.0


def complaint(answer: Answer, prompt: Prompt, parser: str = "") -> str:
    """Why ``answer`` is not what a healthy model says to ``prompt``; empty when it may be. ``parser`` is the engine's
    reasoning parser.
    """
    if said := garbled(answer.content) or garbled(answer.reasoning):
        return said
    still_thinking = answer.finish == "length" and answer.reasoning.strip() and not prompt.expect
    if not answer.content.strip() and not still_thinking:
        return _empty(answer, prompt, parser)
    if answer.finish not in ("stop", "length"):
        return f"the answer ended with finish reason {answer.finish or 'none'}; expected stop or length"
    if prompt.expect and not re.search(prompt.expect, answer.content):
        return f"expected an answer in which `{prompt.expect}` is found, got {_shown(answer.content)}"
    return ""


def garbled(text: str) -> str:
    """Whether ``text`` is one token over and over, or a loop; the symptom named, or empty."""
    text = text.strip()
    if len(text) > 3 and len(set(text)) == 1:
        return _one_token(text[0], text)
    words = text.split()
    run = _longest_run(words)
    if len(run) >= SHORTEST_RUN:
        return _one_token(run[0], " ".join(run))
    marks = re.search(r"([^\w\s=*_#.~-])\1{15,}", text)  # runs of these draw lines
    if marks:
        return _one_token(marks[1], marks[0])
    if loop := " ".join(_loop(words)) or _unspaced_loop(text):
        return (
            f"the answer is a loop: it ends by saying the same over and over ({_shown(loop)}). At temperature 0 that "
            f"is the sign of a wrong kernel (gpt-oss on another MoE backend than Marlin does it) or of a wrong chat "
            f"template: check the recipe's backend flags"
        )
    return ""


def _one_token(token: str, text: str) -> str:
    what = f"the answer is one token repeated ({text[:16]})"
    if token.startswith("!"):
        return (
            f"{what}. '!' is token 0: the engine returns token 0 for every position, which means that its logits "
            f"are all equal or not numbers. On SM121 that is the sign of a wrong FP4 or attention kernel or of "
            f"broken weights: check the patch set, the backend flags of the recipe and the weights."
        )
    return f"{what}: its logits are broken; check the backend flags of the recipe and the weights"


def _longest_run(words: list[str]) -> list[str]:
    best, start = (0, 0), 0
    for i in range(1, len(words) + 1):
        if i == len(words) or words[i] != words[start]:
            best, start = max(best, (i - start, start)), i
    length, begin = best
    return words[begin : begin + length]


def _loop(words: list[str]) -> list[str]:
    """The words that the end of a text says over and over; empty when it does not."""
    for period in range(2, len(words) // ROUNDS + 1):
        tail = words[-period:]
        rounds = max(ROUNDS, -(-SHORTEST_LOOP // period))
        if len(words) >= rounds * period and words[-rounds * period :] == tail * rounds:
            return tail
    return []


def _unspaced_loop(text: str) -> str:
    """The same for text without spaces between its words, as in Chinese; lines that draw a table are none, nor is a
    number.
    """
    found = re.search(r"(\S{2,60}?)\1{7,}\S{0,60}$", text[-2000:])
    return found[1] if found and re.search(r"[^\W\d_]", found[1]) else ""


def _empty(answer: Answer, prompt: Prompt, parser: str) -> str:
    if not answer.reasoning.strip():
        return f"the answer is empty (finish reason {answer.finish or 'none'}, {answer.tokens} tokens)"
    if answer.finish == "length":
        return (
            f"the answer is empty: {answer.tokens} tokens went into reasoning, and {prompt.max_tokens} was the limit. "
            f"Give the recipe's canary a larger max_tokens"
        )
    name = f"the reasoning parser {parser}" if parser else "the engine's reasoning parser"
    return (
        f"`content` is empty and all text is in the reasoning ({_shown(answer.reasoning)}): {name} took the whole "
        f"answer. Give the recipe the parser of this model, or none"
    )


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 80 else f"{text[:50]} ... {text[-26:]}")
