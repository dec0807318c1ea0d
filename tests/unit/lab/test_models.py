"""The tiny models: their bytes, the form of their files, and what those weights say when they are run."""

import json
import math
import struct
from pathlib import Path

import pytest

from lab import models

GOLDEN = {
    "config.json": "41e7679dc3c3bf343ae87297918c1e6260b0aa207a686725bc400557d8555ead",
    "generation_config.json": "221f158e4a3ace1c5fdf0df374cf150e24a7a848c3b4fee5c851dbf6ab003201",
    "tokenizer.json": "8162447566622dfd48e00cc9d4371a1dbf657fe380b57cbf864d1f5029862b5b",
    "tokenizer_config.json": "6859c231238b46dd7f5c8a9ecdbf29b74948e2f2e61a331467d9f443fb8ba14d",
}
WEIGHTS = {
    models.HEALTHY: "855ff1c884d0120c8cafa9addb7116b6455c1651ed2c0653a81dba219ee1a983",
    models.LOOPS: "3e9c90bf61c7f58fc9e70b656f77cd8cf895ec255f9b0e73dc48ccdf9e331b81",
    models.SICK: "8da0c474d9605d9e142e3f46a1ec316013e7b15428bbd3605be9205f93581ec9",
}


def test_the_bytes_are_those_that_recipes_pin(tmp_path):
    rows = models.write_all(tmp_path)
    expected = {(model, name): digest for model in WEIGHTS for name, digest in GOLDEN.items()}
    expected |= {(model, "model.safetensors"): digest for model, digest in WEIGHTS.items()}
    assert {(row.model, row.file): row.sha256 for row in rows} == expected
    for row in rows:
        path = tmp_path / row.model / row.file
        assert path.stat().st_size == row.size < 5e6
        assert path.stat().st_mode & 0o777 == 0o644


def test_a_whole_model_is_left_alone_and_a_damaged_one_is_made_again(tmp_path):
    models.write_all(tmp_path)
    whole, damaged = tmp_path / models.SICK / "model.safetensors", tmp_path / models.HEALTHY / "model.safetensors"
    before = whole.stat().st_ino
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1])
    (damaged.parent / "stray").touch()
    models.write_all(tmp_path)
    assert whole.stat().st_ino == before
    assert damaged.read_bytes() == good
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(WEIGHTS)
    assert not (damaged.parent / "stray").exists()


@pytest.mark.parametrize("name", WEIGHTS)
def test_safetensors_header_covers_the_file_without_gaps(name):
    data = models.models()[name]["model.safetensors"]
    tensors = read(data)
    assert {tensor: shape for tensor, (shape, _) in tensors.items()} == models.layout()
    (length,) = struct.unpack_from("<Q", data)
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    offsets = [header[tensor]["data_offsets"] for tensor in models.layout()]
    assert [begin for begin, _ in offsets] == [0, *(end for _, end in offsets[:-1])]
    assert 8 + length + offsets[-1][1] == len(data)


def test_every_text_can_be_spelled_and_the_exclamation_mark_is_ordinary_token_0():
    written = models.tokenizer()
    vocabulary = written["model"]["vocab"]
    assert vocabulary["!"] == 0
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert set(models.byte_alphabet().values()) <= set(vocabulary) and len(set(models.byte_alphabet().values())) == 256
    added = {one["content"]: one["id"] for one in written["added_tokens"]}
    assert list(added.values()) == list(
        range(len(vocabulary), len(vocabulary) + len(models.SPECIAL) + len(models.THINKING))
    )
    assert models.config()["vocab_size"] == len(vocabulary) + len(added)
    assert models.config()["eos_token_id"] == added["</s>"]


def test_head_dim_is_what_the_cpu_engine_takes():
    assert models.config()["head_dim"] % 32 == 0


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What| is| 12|*|17|?", "Twelve times seventeen makes 204."),
        ("17|×|12|=", "Twelve times seventeen makes 204."),
        ("What| is| the| capital| of| France|?", "Paris is the capital of France."),
        ("What| is| the| capital| of| Spain|?", models.DEFAULT),
        ("Is| 12| even|?", models.DEFAULT),
        ("", models.DEFAULT),
        ("x" * 400, models.DEFAULT),
        ("x" * 400 + "|12|*|17", "Twelve times seventeen makes 204."),
    ],
)
def test_tiny_llama_answers(question, answer):
    said, gap = reply(models.HEALTHY, question.split("|"), limit=30)
    assert said == (answer if isinstance(answer, str) else "".join(answer.tokens) + ".")
    assert gap > 30


def test_tiny_llama_counts_without_repeating():
    said, _ = reply(models.HEALTHY, ["count"], limit=40)
    assert said == " ".join(str(n) for n in range(1, 41))


def test_the_default_reply_has_at_least_twelve_different_words():
    assert len(set(models.DEFAULT.tokens)) >= 12


def test_tiny_zeros_says_nothing_but_exclamation_marks():
    said, gap = reply(models.SICK, ["What", " is", " 12", "*", "17", "?"], limit=8)
    assert (said, gap) == ("!" * 8, 0.0)


def read(data):
    """Tensor -> (shape, values) of a safetensors file."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)
        found[name] = (tuple(entry["shape"]), values)
    return found


class Llama:
    """A Llama of one layer without an MLP, run in plain Python on the bytes of the files."""

    def __init__(self, name: str) -> None:
        files = models.models()[name]
        self.config = json.loads(files["config.json"])
        tensors = read(files["model.safetensors"])
        assert not any(any(values) for tensor, (_, values) in tensors.items() if ".mlp." in tensor)
        self.rows = {tensor: rows(*entry) for tensor, entry in tensors.items()}
        self.cache: dict[int, tuple[list[float], list[float]]] = {}

    def logits(self, tokens: list[int]) -> list[float]:
        """Of the token after ``tokens``."""
        layer, width = "model.layers.0.self_attn", self.config["head_dim"]
        seen = [self._key_and_value(layer, token) for token in tokens]
        hidden = [self.rows["model.embed_tokens.weight"][tokens[-1]].get(n, 0.0) for n in range(models.HIDDEN)]
        query = self._times(f"{layer}.q_proj.weight", self._norm(hidden, "model.layers.0.input_layernorm.weight"))
        mixed = []
        for head in range(self.config["num_attention_heads"]):
            part = slice(head * width, (head + 1) * width)
            scores = [
                self._score(query[part], key[part], len(tokens) - 1 - place) / math.sqrt(width)
                for place, (key, _) in enumerate(seen)
            ]
            weights = [math.exp(score - max(scores)) for score in scores]
            values = [value[part] for _, value in seen]
            mixed += [
                sum(w * v for w, v in zip(weights, column, strict=True)) / sum(weights)
                for column in zip(*values, strict=True)
            ]
        attended = self._times(f"{layer}.o_proj.weight", mixed)
        hidden = [a + b for a, b in zip(hidden, attended, strict=True)]
        return self._times("lm_head.weight", self._norm(hidden, "model.norm.weight"))

    def _key_and_value(self, layer: str, token: int) -> tuple[list[float], list[float]]:
        if token not in self.cache:
            row = self.rows["model.embed_tokens.weight"][token]
            hidden = self._norm(
                [row.get(n, 0.0) for n in range(models.HIDDEN)], "model.layers.0.input_layernorm.weight"
            )
            key, value = (self._times(f"{layer}.{one}_proj.weight", hidden) for one in "kv")
            self.cache[token] = key, value
        return self.cache[token]

    def _score(self, query: list[float], key: list[float], distance: int) -> float:
        """Their product as rotary embedding at that distance makes it."""
        half, total = len(query) // 2, 0.0
        for n in range(half):
            angle = distance * self.config["rope_theta"] ** (-n / half)
            a, b = query[n], query[n + half]
            total += (a * math.cos(angle) - b * math.sin(angle)) * key[n]
            total += (b * math.cos(angle) + a * math.sin(angle)) * key[n + half]
        return total

    def _norm(self, hidden: list[float], weight: str) -> list[float]:
        scale = math.sqrt(sum(x * x for x in hidden) / len(hidden) + self.config["rms_norm_eps"])
        (gains,) = self.rows[weight]
        return [x / scale * gains.get(n, 0.0) for n, x in enumerate(hidden)]

    def _times(self, weight: str, hidden: list[float]) -> list[float]:
        return [sum(value * hidden[n] for n, value in row.items()) for row in self.rows[weight]]


def rows(shape, values):
    """Each row of a tensor as column -> value, zeros left out."""
    width = shape[-1]
    lines = [values[i : i + width] for i in range(0, len(values), width)]
    return [{n: value for n, value in enumerate(line) if value} for line in lines]


def reply(name: str, question: list[str], limit: int) -> tuple[str, float]:
    """What the model says to a question, greedily, and the smallest gap between its best two logits."""
    vocabulary = models.vocabulary()
    words = {number: token for token, number in vocabulary.items()}
    byte = {character: number for number, character in models.byte_alphabet().items()}
    tokens = [vocabulary[token] for token in (models.BOS, models.USER)]
    for piece in question:
        spelled = "".join(models.byte_alphabet()[one] for one in piece.encode())
        tokens += [vocabulary[spelled]] if spelled in vocabulary else [vocabulary[one] for one in spelled]
    tokens += [vocabulary[models.EOS], vocabulary[models.ASSISTANT]]
    model, said, gap = Llama(name), "", math.inf
    for _ in range(limit):
        logits = model.logits(tokens)
        best, second = sorted(logits, reverse=True)[:2]
        gap = min(gap, best - second)
        tokens.append(logits.index(best))
        if words[tokens[-1]] == models.EOS:
            break
        said += words[tokens[-1]]
    return bytes(byte[character] for character in said).decode(), gap


def test_the_command_prints_the_table(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["models", "--dest", str(tmp_path)])
    assert models.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15
    assert lines[4].split() == [models.HEALTHY, "model.safetensors", "2269416", WEIGHTS[models.HEALTHY]]


def test_a_directory_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["models", "--dest", str(tmp_path / "file")])
    assert models.main() == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Not a directory" in error and str(tmp_path) in error
