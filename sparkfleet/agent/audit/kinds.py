"""What a tensor is for, by its name: names are the one thing that all checkpoints of an architecture share. Pure."""

import re
from functools import lru_cache

EXPERTS = "experts"
ROUTER = "router"
SHARED = "shared expert"
LINEAR = "linear attention"
ATTENTION = "attention"
MLP = "MLP"
EMBEDDING = "embedding"
HEAD = "lm_head"
NORM = "norm"
DRAFT = "draft (MTP)"
SENSES = "vision or audio"
UNKNOWN = "unknown"

#: The first that matches the module's name counts. Names as in the checkpoints of Qwen, gpt-oss, Nemotron-H, Gemma,
#: DeepSeek, Llama, Mixtral and their kin.
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (DRAFT, r"(^|\.)(mtp|nextn|eagle|medusa)(\.|_)"),
        (
            SENSES,
            r"(^|\.)(visual|vision\w*|audio\w*|image\w*|multi_modal_projector|mm_projector|sound\w*|embed_vision)\.",
        ),
        (ROUTER, r"\.(router|shared_expert_gate)(\.|$)|\.(mlp|block_sparse_moe|moe|mixer|feed_forward)\.gate(\.|$)"),
        (SHARED, r"\.shared_(experts?|mlp)(\.|$)"),
        (NORM, r"(norm\w*|\bln_\w+|layer_scalar)(\.\w+)?$"),
        (EXPERTS, r"\.experts(\.|$)"),
        (LINEAR, r"\.(linear_attn|gdn|mamba|ssm|delta_net)\."),
        (LINEAR, r"\.mixer\.(in_proj|out_proj|conv1d|A_log|D|dt_bias|dt_proj|x_proj)$"),
        (ATTENTION, r"\.(self_attn|self_attention|attention|attn|cross_attn)(\.|$)|\.(q|k|v|o|qkv|kv_\w+|q_\w+)_proj$"),
        (MLP, r"\.(mlp|feed_forward|ffn)(\.|$)|\.(gate|up|down|gate_up)_proj$"),
        (EMBEDDING, r"(^|\.)(embed_tokens\w*|embeddings?|word_embeddings|wte|tok_embeddings|embed_in)$"),
        (HEAD, r"(^|\.)(lm_head|embed_out|output)$"),
    )
)

_LAYER = re.compile(r"\.(?:layers|blocks|h)\.(\d{1,6})\.")


@lru_cache(maxsize=4096)
def kind(module: str) -> str:
    """What the module ``module`` is for; numbers in its name may have been left out."""
    return next((name for name, pattern in _KINDS if pattern.search(module)), UNKNOWN)


def layer(name: str) -> int | None:
    """The number of the layer that ``name`` belongs to; None outside of any."""
    found = _LAYER.search(f".{name}")
    return int(found[1]) if found else None
