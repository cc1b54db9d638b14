"""Writes synthetic models for measurements of speed: headers, with a hole in place of the weights."""
import struct

TYPES = {"F32": (0, 1, 4), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "MXFP4": (39, 32, 17)}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def number(key, value):
    kind = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(value)]
    return string(key) + struct.pack("<I" + kind[1], kind[0], value)


def text(key, value):
    return string(key) + struct.pack("<I", 8) + string(value)


def array(key, kind, form, values):
    head = string(key) + struct.pack("<IIQ", 9, kind, len(values))
    return head + (b"".join(map(string, values)) if kind == 8 else struct.pack(f"<{len(values)}{form}", *values))


def tensors(m):
    e, v, d = m["embedding"], m["vocabulary"], m["head"]
    q, k = m["heads"] * d, m["heads_kv"] * d
    kind, spared, experts, spared_experts = m["kinds"]
    yield "token_embd.weight", m["output"] if m.get("tied") else kind, (e, v)
    yield "output_norm.weight", "F32", (e,)
    if not m.get("tied"):
        yield "output.weight", m["output"], (e, v)
    for layer in range(m["layers"]):
        p = f"blk.{layer}."
        yield p + "attn_norm.weight", "F32", (e,)
        yield p + "attn_q.weight", kind, (e, q)
        yield p + "attn_k.weight", kind, (e, k)
        yield p + "attn_v.weight", spared, (e, k)
        yield p + "attn_output.weight", kind, (q, e)
        if m["architecture"] != "llama":
            yield p + "attn_q_norm.weight", "F32", (d,)
            yield p + "attn_k_norm.weight", "F32", (d,)
        yield p + "ffn_norm.weight", "F32", (e,)
        f, n = m["feed_forward"], m.get("experts", 0)
        if n:
            yield p + "ffn_gate_inp.weight", "F32", (e, n)
            yield p + "ffn_gate_exps.weight", experts, (e, f, n)
            yield p + "ffn_up_exps.weight", experts, (e, f, n)
            yield p + "ffn_down_exps.weight", spared_experts, (f, e, n)
        else:
            yield p + "ffn_gate.weight", kind, (e, f)
            yield p + "ffn_up.weight", kind, (e, f)
            yield p + "ffn_down.weight", spared, (f, e)


def write(path, name, m):
    a = m["architecture"]
    keys = [text("general.architecture", a), text("general.type", "model"), text("general.name", name)]
    sizes = {"block_count": m["layers"], "context_length": 131072, "embedding_length": m["embedding"],
             "feed_forward_length": m["feed_forward"], "attention.head_count": m["heads"], "attention.head_count_kv": m["heads_kv"],
             "attention.key_length": m["head"], "attention.value_length": m["head"], "attention.layer_norm_rms_epsilon": 1e-5,
             "rope.dimension_count": m["head"], "rope.freq_base": 500000.0, "vocab_size": m["vocabulary"]}
    if m.get("experts"):
        sizes |= {"expert_count": m["experts"], "expert_used_count": m["used"], "expert_feed_forward_length": m["feed_forward"]}
    keys += [number(f"{a}.{key}", value) for key, value in sizes.items()]
    count = m["vocabulary"]
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *(f"\u2581w{n}" for n in range(count - 259))]
    keys += [text("tokenizer.ggml.model", "llama"), array("tokenizer.ggml.tokens", 8, "", words),
             array("tokenizer.ggml.scores", 6, "f", [0.0] * 259 + [-1.0] * (count - 259)),
             array("tokenizer.ggml.token_type", 5, "i", [2, 3, 3] + [6] * 256 + [1] * (count - 259)),
             number("tokenizer.ggml.unknown_token_id", 0), number("tokenizer.ggml.bos_token_id", 1),
             number("tokenizer.ggml.eos_token_id", 2), number("tokenizer.ggml.add_bos_token", True)]
    infos, offset = [], 0
    for tensor, kind, shape in tensors(m):
        code, block, size = TYPES[kind]
        infos.append(string(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, offset))
        length = size
        for extent in shape:
            length *= extent
        offset += -(-(length // block) // 32) * 32
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    start = -(-len(head) // 32) * 32
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(start + offset)


MIXED = ("Q4_K", "Q6_K", "Q4_K", "Q6_K")
NARROW = ("Q4_K",) * 4
CALIBRATION = {
    # Wide matrices: the steps of rows.
    "cal-wide": dict(architecture="llama", layers=12, embedding=8192, vocabulary=32000, feed_forward=22528, heads=64, heads_kv=8, head=128,
                     kinds=MIXED, output="Q6_K"),
    # Experts of MXFP4 beside Q8_0, a long vocabulary, and heads of 96 that share no key.
    "cal-experts": dict(architecture="qwen3moe", layers=16, embedding=2560, vocabulary=160000, feed_forward=1536, heads=24, heads_kv=24, head=96,
                        experts=16, used=8, kinds=("Q8_0", "Q8_0", "MXFP4", "MXFP4"), output="Q8_0"),
    # Many small matrices: the kernels.
    "cal-narrow": dict(architecture="llama", layers=40, embedding=1024, vocabulary=32000, feed_forward=2048, heads=32, heads_kv=8, head=64,
                       kinds=NARROW, output="Q6_K"),
}
SEALED = {
    "small-24b": dict(architecture="llama", layers=40, embedding=5120, vocabulary=131072, feed_forward=32768, heads=32, heads_kv=8, head=128,
                      kinds=MIXED, output="Q6_K"),
    "smol-1b7-q8": dict(architecture="llama", layers=24, embedding=2048, vocabulary=49152, feed_forward=8192, heads=32, heads_kv=32, head=64,
                        kinds=("Q8_0",) * 4, output="Q8_0", tied=True),
    "ernie-21b": dict(architecture="qwen3moe", layers=28, embedding=2560, vocabulary=103424, feed_forward=1536, heads=20, heads_kv=4, head=128,
                      experts=64, used=6, kinds=MIXED, output="Q6_K"),
}
