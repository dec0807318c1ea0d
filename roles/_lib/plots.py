"""A result as a picture that people post: all clients together on the left, each of them on the right. Pure."""

import math
import time
from collections.abc import Sequence
from typing import Any

from roles._lib import render

#: Where a panel stands in the picture (1200 x 675), in its units.
_TOP, _BOTTOM = 170.0, 540.0
_PANELS = ((80.0, 560.0), (680.0, 1160.0))


def plot(one: dict[str, Any]) -> str:
    """The SVG of one result of ``benches.document``."""
    points = one["points"]
    clients = [each["concurrency"] for each in points]
    lines = [(one["ceiling"], "memory bandwidth"), (one["baseline"], "the recipe's baseline")]
    marks = [(value, name) for value, name in lines if value]
    return render.picture(
        "bench.svg.j2",
        title=one["recipe"],
        subtitle=_subtitle(one),
        footer=_footer(one),
        panels=[
            _panel("all clients together", clients, [each["total"] for each in points], [], _PANELS[0]),
            _panel("each client", clients, [each["each"] for each in points], marks, _PANELS[1]),
        ],
        top=_TOP,
        bottom=_BOTTOM,
    )


def _subtitle(one: dict[str, Any]) -> str:
    machine = one["machine"] or {}
    where = machine.get("gpu") if machine.get("spark") else "not a Spark"
    parts = [where, one["engine"], one["quantization"] if one["quantization"] != "none" else ""]
    parts.append(f"driver {machine['driver']}" if machine.get("spark") and machine.get("driver") else "")
    return "  ·  ".join(str(part) for part in parts if part)


def _footer(one: dict[str, Any]) -> str:
    points = one["points"]
    first, last = points[0], points[-1]
    times = f"first token after {first['first'] * 1000:.0f} ms with {first['concurrency']}"
    if last is not first:
        times += f", {last['first'] * 1000:.0f} ms with {last['concurrency']}"
    if not one["agrees"]:
        times += "; a second generator disagrees"
    day = time.strftime("%Y-%m-%d", time.gmtime(one["at"]))
    return f"200 tokens, temperature 0, {first['generator']}; {times}  ·  sparkfleet {one['sparkfleet']}, {day}"


def _panel(
    title: str,
    clients: Sequence[int],
    values: Sequence[float],
    marks: Sequence[tuple[float, str]],
    place: tuple[float, float],
) -> dict[str, Any]:
    left, right = place
    step = nice_step(max([*values, *(value for value, _ in marks), 1.0]) * 1.12)
    top = step * math.ceil(max([*values, *(value for value, _ in marks), 1.0]) * 1.12 / step)

    def height(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * value / top, 1)

    room = (right - left) / len(clients)
    across = [round(left + room * (i + 0.5), 1) for i in range(len(clients))]
    return {
        "title": title,
        "width": round(min(52.0, room * 0.7), 1),
        "left": left,
        "right": right,
        "ticks": [{"y": height(i * step), "text": f"{i * step:g}"} for i in range(round(top / step) + 1)],
        "marks": [{"y": height(value), "text": f"{name} {value:.3g}"} for value, name in marks],
        "points": [
            {"x": x, "y": height(value), "text": f"{value:.3g}" if value < 1000 else f"{value:.0f}", "clients": number}
            for x, value, number in zip(across, values, clients, strict=True)
        ],
    }


def nice_step(most: float, ticks: int = 5) -> float:
    """A distance of ticks that people like, so that about ``ticks`` of them reach ``most``."""
    power = 10.0 ** math.floor(math.log10(most / ticks))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * ticks >= most * 0.999)
