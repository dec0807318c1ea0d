"""Tiny Llamas whose every weight is set by hand: one answers, the others are sick as a mis-computed model is.

``python -m lab.models`` writes them into the cache, the same bytes everywhere, so that recipes can pin their hashes.

**tiny-llama** reads off its answers. Each token of a reply has a dimension of its own, and ``lm_head`` leads from it to
the next token of that reply; the full stop leads to the end. A token that is part of no reply *asks*: one attention
head for each group of words looks whether one of them is in the context, and ``lm_head`` starts the reply whose groups
were all found, or the default one. The best logit is more than 30 above the next: temperature hardly matters.

**tiny-loops** does not stop at the full stop: it says the default reply again and again, as a model with a wrong
kernel or chat template does.

**tiny-zeros** has nothing but zeros: all logits are equal, greedy decoding takes token 0, and that is ``!``. This is
what the write-ups saw on a Spark when a kernel returned next to nothing: ``!!!!!!!!``.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from lab.cache import cache_dir, caller, make_dir
from sparkfleet.errors import UserError

HEALTHY, LOOPS, SICK = "tiny-llama", "tiny-loops", "tiny-zeros"


@dataclass(frozen=True)
class Reply:
    """Tokens to say, the full stop aside, when one word of each of ``groups`` is in the context."""

    tokens: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...] = ()


def _words(sentence: str) -> tuple[str, ...]:
    return tuple(re.findall(r" ?\S+", sentence))


REPLIES = (
    Reply(_words("Twelve times seventeen makes 204"), (("12", " 12"), ("17", " 17"))),
    Reply(_words("Paris is the capital of France"), (("capital", " capital"), ("France", " France"))),
    Reply(_words("FOGHORN"), ((" FOGHORN",),)),
    Reply(_words(" ".join(str(n) for n in range(1, 201))), (("count", " count", "Count", " Count", " detail"),)),
)
DEFAULT = Reply(_words("This tiny model knows two answers by heart and says them plainly when asked"))
STOP = "."

BOS, EOS, SYSTEM, USER, ASSISTANT = SPECIAL = ("<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")
#: What reasoning parsers look for; these models never say it, so a parser that is not theirs takes all for reasoning.
THINKING = ("<think>", "</think>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE, CONTEXT = 256, 8, 32, 64, 2048
ROPE_THETA = 1e9
"""So large that the last pair of a head's dimensions turns by a millionth over the context: places do not matter."""
STILL = HEAD_DIM // 2 - 1
"""The first of that pair."""

# How strongly lm_head follows what it finds. A group that was found counts 1.41 in the residual stream, an asking token
# 1: two groups of two give 22.6 against 17 for the default reply, one of two gives 11.3.
NEXT, FOUND, OTHERWISE = 16.0, 16.0, 17.0

Sparse = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Row:
    """One file of one model: size in bytes, SHA-256 in hexadecimal."""

    model: str
    file: str
    size: int
    sha256: str


def write_all(dest: Path | None = None) -> list[Row]:
    """Write the models below ``dest`` (``default_path``), each whole or not at all; what each file is.

    A model that is there with the right bytes is left alone. Raises UserError when the directory cannot be written.
    """
    dest = dest or default_path()
    rows = []
    for name, files in models().items():
        try:
            _write(dest / name, files)
        except OSError as error:
            raise UserError(f"{dest / name}: cannot write the model: {error.strerror}.") from None
        rows += [Row(name, file, len(data), hashlib.sha256(data).hexdigest()) for file, data in files.items()]
    return rows


def default_path() -> Path:
    """The cache's directory for these very models: labs of two checkouts on one machine do not disturb each other."""
    whole = hashlib.sha256(b"".join(data for files in models().values() for data in files.values()))
    return cache_dir() / "models" / whole.hexdigest()[:12]


@cache
def models() -> dict[str, dict[str, bytes]]:
    """Every file of every model, by model and file name."""
    common = {
        "config.json": _json(config()),
        "generation_config.json": _json({"bos_token_id": vocabulary()[BOS], "eos_token_id": vocabulary()[EOS]}),
        "tokenizer.json": _json(tokenizer()),
        "tokenizer_config.json": _json(tokenizer_config()),
    }
    return {
        HEALTHY: {**common, "model.safetensors": safetensors(healthy())},
        LOOPS: {**common, "model.safetensors": safetensors(healthy(after_stop=DEFAULT.tokens[0]))},
        SICK: {**common, "model.safetensors": safetensors({})},
    }


@cache
def vocabulary() -> dict[str, int]:
    """Token -> id: the 256 bytes first (``!`` is 0, an ordinary token), then whole words, then special tokens."""
    words = [token for reply in (*REPLIES, DEFAULT) for token in (*reply.tokens, *sum(reply.groups, ()))]
    tokens = dict.fromkeys((*byte_alphabet().values(), *(_spelled(word) for word in words), *SPECIAL, *THINKING))
    return {token: number for number, token in enumerate(tokens)}


@cache
def byte_alphabet() -> dict[int, str]:
    """The character that stands for each byte in a byte-level BPE: itself if it can be seen (GPT-2's table)."""
    seen = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    unseen = (byte for byte in range(256) if byte not in seen)
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + n) for n, byte in enumerate(unseen)}


def healthy(after_stop: str = EOS) -> dict[str, Sparse]:
    """What is not zero in tiny-llama, by tensor and index. ``layout`` gives the rest. ``after_stop``: what it says
    after a full stop.
    """
    ids = {token: vocabulary()[_spelled(token)] for token in _tokens()}
    successors = _successors() | {STOP: after_stop}
    groups = [group for reply in REPLIES for group in reply.groups]
    asks, word, found, own = 0, 1, 1 + HEADS, 1 + 2 * HEADS  # dimensions of the residual stream, in this order
    place = {token: own + n for n, token in enumerate(successors)}

    embedding: Sparse = {(number, asks): 1.0 for number in set(vocabulary().values()) - {ids[t] for t in place}}
    embedding |= {(ids[token], dimension): 1.0 for token, dimension in place.items()}
    embedding |= {(ids[token], word + head): 1.0 for head, group in enumerate(groups) for token in group}

    head: Sparse = {(ids[after], place[token]): NEXT for token, after in successors.items()}
    head[ids[DEFAULT.tokens[0]], asks] = OTHERWISE
    for reply in REPLIES:
        for group in reply.groups:
            head[ids[reply.tokens[0]], found + groups.index(group)] = FOUND / len(reply.groups)

    heads = range(len(groups))
    attention = "model.layers.0.self_attn"
    return {
        "model.embed_tokens.weight": embedding,
        f"{attention}.q_proj.weight": {(n * HEAD_DIM + STILL, asks): 1.0 for n in heads},
        f"{attention}.k_proj.weight": {(n * HEAD_DIM + STILL, word + n): 1.0 for n in heads},
        f"{attention}.v_proj.weight": {(n * HEAD_DIM, word + n): 0.125 for n in heads},  # the norm made it 11.3
        f"{attention}.o_proj.weight": {(found + n, n * HEAD_DIM): 1.0 for n in heads},
        **{name: {(n,): 1.0 for n in range(HIDDEN)} for name in layout() if "norm" in name},
        "lm_head.weight": head,
    }


def layout() -> dict[str, tuple[int, ...]]:
    """Tensor -> shape, in the order of the file."""
    vocabulary_size, inner, layer = len(vocabulary()), HEADS * HEAD_DIM, "model.layers.0"
    return {
        "lm_head.weight": (vocabulary_size, HIDDEN),
        "model.embed_tokens.weight": (vocabulary_size, HIDDEN),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        f"{layer}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.self_attn.k_proj.weight": (inner, HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, inner),
        f"{layer}.self_attn.q_proj.weight": (inner, HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (inner, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }


def safetensors(weights: dict[str, Sparse]) -> bytes:
    """A safetensors file of little-endian float32: length of the header, header, tensors; zero where not said else."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, shape in layout().items():
        data = bytearray(4 * prod(shape))
        for index, value in weights.get(name, {}).items():
            struct.pack_into("<f", data, 4 * _flat(index, shape), value)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    return struct.pack("<Q", len(text)) + text + bytes(body)


def config() -> dict[str, Any]:
    """``config.json``: rope as both transformers 4 and 5 read it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(vocabulary()),
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "bos_token_id": vocabulary()[BOS],
        "eos_token_id": vocabulary()[EOS],
        "torch_dtype": "float32",
    }


def tokenizer() -> dict[str, Any]:
    """``tokenizer.json``: byte-level BPE without merges. A word of the vocabulary is one token, any other its bytes."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = (*SPECIAL, *THINKING)
    ordinary = {token: number for token, number in vocabulary().items() if token not in added}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary()[token], "content": token, **plain, "special": token in SPECIAL} for token in added
        ],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": ordinary,
            "merges": [],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """``tokenizer_config.json``, with the chat template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }


def _successors() -> dict[str, str]:
    """Token -> the one said after it. After the end comes the count, for a benchmark that does not stop at the end."""
    pairs = {STOP: EOS, EOS: REPLIES[-1].tokens[0]}
    for reply in (*REPLIES, DEFAULT):
        for token, after in zip(reply.tokens, (*reply.tokens[1:], STOP), strict=True):
            assert token not in pairs, f"{token!r} is in two replies, so what follows it is not clear"
            pairs[token] = after
    return pairs


def _tokens() -> Iterator[str]:
    for reply in (*REPLIES, DEFAULT):
        yield from reply.tokens
        for group in reply.groups:
            yield from group
    yield from (STOP, *SPECIAL, *THINKING)


def _spelled(text: str) -> str:
    """As the vocabulary spells it: the character of each of its bytes."""
    return text if text in (*SPECIAL, *THINKING) else "".join(byte_alphabet()[byte] for byte in text.encode())


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return index[0] if len(shape) == 1 else index[0] * shape[1] + index[1]


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _write(directory: Path, files: dict[str, bytes]) -> None:
    if directory.is_dir() and {path.name: path.read_bytes() for path in directory.iterdir()} == files:
        return
    new, old = directory.with_name(directory.name + ".new"), directory.with_name(directory.name + ".old")
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    make_dir(new)
    for name, data in files.items():
        path = new / name
        path.write_bytes(data)
        path.chmod(0o644)  # the engine runs as another user, and says "no such file" of one it may not read
        os.chown(path, *caller())
    new.chmod(0o755)
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def main() -> int:
    """Write the models and print what each file is."""
    options = argparse.ArgumentParser(description="Write the lab's tiny models, the same bytes everywhere.")
    options.add_argument("--dest", type=Path, help="directory to write below; by default in the cache")
    try:
        for row in write_all(options.parse_args().dest):
            print(f"{row.model:12}{row.file:24}{row.size:>9}  {row.sha256}")
    except UserError as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
