"""Makes the golden files of this folder: what `transformers` and PyTorch compute in fp32.

    python tests/goldens/make_goldens.py [--out DIR] [variant ...]

Each variant becomes a Hugging Face folder (config.json, model.safetensors as save_pretrained writes
them) and a golden.safetensors beside them. README.md says what is in it and what it was made with.
"""

import argparse
import json
import math
import os
import pathlib
import re

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
STEPS = 20
LR, BETAS, EPS, WEIGHT_DECAY, CLIP_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
LOGIT_ROWS = 24

# What differs from BASE. batch, seq_len and packed are of the data, `family` is the model_type ("llama" if absent), and
# the rest are fields of its configuration.
BASE = dict(hidden_size=16, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, head_dim=4, vocab_size=61, max_position_embeddings=64,
            rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
ABSENT = object()  # a field of BASE that a family does not have
VARIANTS = {
    "plain": dict(),
    # Fewer key-value heads, and a head size that is not hidden / heads.
    "gqa": dict(num_attention_heads=6, num_key_value_heads=2, head_dim=6, rms_norm_eps=1e-6),
    "tied": dict(num_key_value_heads=2, tie_word_embeddings=True),
    # Wavelengths 6, 30, 140, 665 against bands at 24 and 96: one frequency is kept, one blended,
    # two are divided. Positions go far enough for each to turn visibly.
    "rope_scaled": dict(num_key_value_heads=2, head_dim=8, rope_theta=500.0, max_position_embeddings=768,
                        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                          high_freq_factor=4.0, original_max_position_embeddings=96),
                        batch=2, seq_len=64),
    "biased": dict(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    # Two documents in each sequence: positions restart, attention does not cross the border.
    "packed": dict(num_key_value_heads=2, head_dim=6, packed=True, batch=3, seq_len=24),
    # Norms of the heads of queries and keys.
    "qwen3": dict(family="qwen3", num_key_value_heads=2, head_dim=6),
    "mistral": dict(family="mistral", num_key_value_heads=2, head_dim=6, sliding_window=None),
    # Norms with the factor 1 + w, the embedding times the root of the hidden size, tanh GELU, a tied head.
    "gemma": dict(family="gemma", num_key_value_heads=1, head_dim=6, tie_word_embeddings=True, packed=True, batch=3,
                  seq_len=24),
    # LayerNorm, an MLP without a gate, other names, biases everywhere.
    "starcoder2": dict(family="starcoder2", num_key_value_heads=2, head_dim=ABSENT, tie_word_embeddings=True,
                       rms_norm_eps=ABSENT, norm_epsilon=1e-5),
    # A squared ReLU without a gate.
    "arcee": dict(family="arcee", num_key_value_heads=2, head_dim=6, attention_bias=True),
    # LayerNorm with the factor 1 + w, and half of each head rotated.
    "nemotron": dict(family="nemotron", num_key_value_heads=2, head_dim=8, rms_norm_eps=ABSENT,
                     norm_eps=1e-5),
    # LayerNorm, and a quarter of each head rotated.
    "stablelm": dict(family="stablelm", hidden_size=32, num_key_value_heads=2, head_dim=ABSENT, rms_norm_eps=ABSENT,
                     layer_norm_eps=1e-5, use_qkv_bias=True),
    # Neighboring elements of a head are rotated together.
    "helium": dict(family="helium", num_key_value_heads=2, head_dim=4),
    "ernie4_5": dict(family="ernie4_5", num_key_value_heads=2, head_dim=6, use_bias=True),
    # All frequencies divided by the factor.
    "rope_linear": dict(num_key_value_heads=2, rope_theta=500.0, rope_scaling=dict(rope_type="linear", factor=4.0)),
    # Windows that are shorter than the sequence: in all layers, in the upper one, in the listed ones.
    "mistral_window": dict(family="mistral", num_key_value_heads=2, head_dim=6, sliding_window=5),
    "qwen2_window": dict(family="qwen2", num_key_value_heads=2, head_dim=ABSENT, use_sliding_window=True,
                         sliding_window=5, max_window_layers=1),
    "ministral": dict(family="ministral", num_key_value_heads=2, head_dim=6, sliding_window=5,
                      layer_types=["full_attention", "sliding_attention"]),
    # Norms after attention and MLP too, capped scores and logits, a scale of scores, windows in every second layer.
    # The caps are low enough to bend most values.
    "gemma2": dict(family="gemma2", num_key_value_heads=2, head_dim=6, tie_word_embeddings=True, sliding_window=5,
                   query_pre_attn_scalar=24, attn_logit_softcapping=1.5, final_logit_softcapping=3.0),
    "vaultgemma": dict(family="vaultgemma", num_key_value_heads=2, head_dim=6, tie_word_embeddings=True,
                       sliding_window=5, query_pre_attn_scalar=24, attn_logit_softcapping=1.5,
                       final_logit_softcapping=3.0),
    # Another table of positions in layers with a window, and norms of heads.
    "gemma3": dict(family="gemma3_text", num_hidden_layers=3, num_key_value_heads=2, head_dim=6,
                   tie_word_embeddings=True, sliding_window=5, query_pre_attn_scalar=24, sliding_window_pattern=3,
                   rope_theta=500.0, rope_local_base_freq=50.0, rope_scaling=dict(rope_type="linear", factor=4.0)),
    # Factors of the embedding, the scores, the residual updates and the logits.
    "granite": dict(family="granite", num_key_value_heads=2, head_dim=6, embedding_multiplier=3.0,
                    residual_multiplier=0.3, attention_multiplier=0.2, logits_scaling=4.0),
    # A layer without positions.
    "smollm3": dict(family="smollm3", num_key_value_heads=2, head_dim=6, tie_word_embeddings=True,
                    no_rope_layer_interval=2, rope_theta=500.0),
    # Attention and MLP run in parallel after one LayerNorm without a bias; a factor of the logits.
    "cohere": dict(family="cohere", num_key_value_heads=2, head_dim=ABSENT, tie_word_embeddings=True, logit_scale=0.3,
                   rms_norm_eps=ABSENT, layer_norm_eps=1e-5),
    # The same with windows, and without positions in the layers without a window.
    "cohere2": dict(family="cohere2", num_key_value_heads=2, head_dim=ABSENT, tie_word_embeddings=True,
                    logit_scale=0.3, rms_norm_eps=ABSENT, layer_norm_eps=1e-5, sliding_window=5,
                    sliding_window_pattern=2),
    # Norms only after attention and MLP.
    "exaone4": dict(family="exaone4", num_key_value_heads=2, head_dim=6, sliding_window=5, sliding_window_pattern=2),
    # Attention and MLP run in parallel after one LayerNorm; biases everywhere, in the head too.
    "phi": dict(family="phi", num_key_value_heads=2, head_dim=ABSENT, hidden_size=32, rms_norm_eps=ABSENT,
                layer_norm_eps=1e-5),
    # Queries, keys and values in one tensor, gate and up in another.
    "phi3": dict(family="phi3", num_key_value_heads=2, head_dim=ABSENT, partial_rotary_factor=0.5, hidden_size=32),
    # Gate and up in one tensor, half of each head rotated, neighboring pairs.
    "glm": dict(family="glm", num_key_value_heads=2, head_dim=8),
    "glm4": dict(family="glm4", num_key_value_heads=2, head_dim=8),
    # Attention and MLP run in parallel after separate norms; one tensor has the queries, keys and values of each head.
    "gpt_neox": dict(family="gpt_neox", num_key_value_heads=ABSENT, head_dim=ABSENT, hidden_size=32, rope_theta=ABSENT,
                     rms_norm_eps=ABSENT, layer_norm_eps=1e-5),
    # Learned positions; transposed matrices, queries, keys and values in one of them.
    "gpt2": dict(family="gpt2", num_key_value_heads=ABSENT, head_dim=ABSENT, rms_norm_eps=ABSENT,
                 intermediate_size=ABSENT, rope_theta=ABSENT, n_inner=28, layer_norm_epsilon=1e-5,
                 tie_word_embeddings=True, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, packed=True, batch=3,
                 seq_len=24),
    # YaRN. Of four frequencies, one is kept, one divided, and two are between; queries and keys are multiplied.
    "rope_yarn": dict(num_key_value_heads=2, head_dim=8, rope_theta=500.0,
                      rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                                        beta_fast=8.0, beta_slow=0.25),
                      max_position_embeddings=256, batch=2, seq_len=64),
    # Bounds that are not rounded, and another way to state the attention factor.
    "rope_yarn_mscale": dict(num_key_value_heads=2, head_dim=8, rope_theta=500.0,
                             rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                                               beta_fast=8.0, beta_slow=0.25, truncate=False, mscale=3.0,
                                               mscale_all_dim=0.5),
                             max_position_embeddings=256, batch=2, seq_len=64),
    # With the numbers that it has if only the factor is stated.
    "qwen2_yarn": dict(family="qwen2", num_key_value_heads=2, head_dim=ABSENT, hidden_size=32, rope_theta=500.0,
                       rope_scaling=dict(rope_type="yarn", factor=4.0)),
    # LongRoPE: sequences of at most the original length, and longer ones, which have other frequencies.
    "phi3_longrope_short": dict(family="phi3", num_key_value_heads=2, head_dim=ABSENT, hidden_size=32,
                                partial_rotary_factor=0.5, rope_theta=100.0, original_max_position_embeddings=16,
                                rope_scaling=dict(type="longrope", short_factor=[1.0, 1.5], long_factor=[2.0, 3.0])),
    "phi3_longrope_long": dict(family="phi3", num_key_value_heads=2, head_dim=ABSENT, hidden_size=32,
                               partial_rotary_factor=0.75, rope_theta=100.0, original_max_position_embeddings=6,
                               rope_scaling=dict(type="longrope", short_factor=[1.0, 1.5, 2.0],
                                                 long_factor=[1.25, 2.0, 3.5])),
    # The same without transposed matrices, and one key-value head.
    "gpt_bigcode": dict(family="gpt_bigcode", num_key_value_heads=ABSENT, head_dim=ABSENT, rms_norm_eps=ABSENT,
                        intermediate_size=ABSENT, rope_theta=ABSENT, n_inner=28, layer_norm_epsilon=1e-5,
                        tie_word_embeddings=True, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    # Attention and MLP run in parallel after one LayerNorm; half of each head rotated, neighboring pairs; biases of the
    # MLP and of the head.
    "gptj": dict(family="gptj", num_key_value_heads=ABSENT, head_dim=ABSENT, hidden_size=32, rms_norm_eps=ABSENT,
                 intermediate_size=ABSENT, rope_theta=ABSENT, n_inner=28, layer_norm_epsilon=1e-5, rotary_dim=4),
    # Learned positions with two unused rows before them, ReLU.
    "opt": dict(family="opt", num_key_value_heads=ABSENT, head_dim=ABSENT, rms_norm_eps=ABSENT, intermediate_size=ABSENT,
                rope_theta=ABSENT, ffn_dim=28, tie_word_embeddings=True, dropout=0.0, packed=True, batch=3, seq_len=24),
    # Granite without experts and Mamba layers: gate and up in one tensor.
    "granitemoehybrid": dict(family="granitemoehybrid", num_key_value_heads=2, head_dim=ABSENT,
                             intermediate_size=ABSENT, shared_intermediate_size=28, num_local_experts=0,
                             layer_types=["attention", "attention"], position_embedding_type="rope",
                             mamba_n_heads=4, mamba_expand=1, embedding_multiplier=3.0, residual_multiplier=0.3,
                             attention_multiplier=0.2, logits_scaling=4.0),
    # Attention and MLP run one after the other.
    "gpt_neox_sequential": dict(family="gpt_neox", num_key_value_heads=ABSENT, head_dim=ABSENT, hidden_size=32,
                                rope_theta=ABSENT, rms_norm_eps=ABSENT, layer_norm_eps=1e-5,
                                use_parallel_residual=False),
    # Attention and MLP run in parallel after one LayerNorm; one key-value head; GELU; no biases.
    "falcon": dict(family="falcon", num_key_value_heads=ABSENT, head_dim=ABSENT, intermediate_size=ABSENT,
                   ffn_hidden_size=28, rms_norm_eps=ABSENT, layer_norm_epsilon=1e-5, tie_word_embeddings=True),
    # Separate norms; one tensor has, for each key-value head, its queries, key and value.
    "falcon_40b": dict(family="falcon", num_key_value_heads=ABSENT, head_dim=ABSENT, intermediate_size=ABSENT,
                       ffn_hidden_size=28, rms_norm_eps=ABSENT, layer_norm_epsilon=1e-5, tie_word_embeddings=True,
                       new_decoder_architecture=True, num_kv_heads=2, bias=True),
    "internlm3": dict(family="internlm3", num_key_value_heads=2, head_dim=6),
    # Llama under the names of PUBLISHED.
    "exaone": dict(num_key_value_heads=2, published="exaone"),
    "internlm2": dict(num_key_value_heads=2, attention_bias=True, published="internlm2"),
    # One norm over all heads of queries, and one over all heads of keys; norms only after attention and MLP.
    "olmo2": dict(family="olmo2", num_key_value_heads=2, head_dim=6),
    # Windows, and RoPE that is scaled only in layers without one.
    "olmo3": dict(family="olmo3", num_key_value_heads=2, head_dim=6, sliding_window=5, rope_theta=ABSENT,
                  layer_types=["sliding_attention", "full_attention"],
                  rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=500.0),
                                       full_attention=dict(rope_type="yarn", rope_theta=500.0, factor=4.0,
                                                           original_max_position_embeddings=16))),
    # Norms of heads after RoPE, whose base is multiplied by a power of alpha.
    "hunyuan_v1_dense": dict(family="hunyuan_v1_dense", num_key_value_heads=2, head_dim=6, rope_theta=ABSENT,
                             rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, alpha=50.0, factor=1.0)),
    # Other activation functions than those of the family.
    "llama_relu": dict(num_key_value_heads=2, hidden_act="relu"),
    "opt_gelu": dict(family="opt", num_key_value_heads=ABSENT, head_dim=ABSENT, rms_norm_eps=ABSENT,
                     intermediate_size=ABSENT, rope_theta=ABSENT, ffn_dim=28, tie_word_embeddings=True, dropout=0.0,
                     enable_bias=False, activation_function="gelu"),
}

# Families that compute what Llama does, but that the library lacks: the fields of their published config.json that Llama
# has under other names or lacks, and the names of tensors.
PUBLISHED = {
    "exaone": dict(
        config=dict(model_type="exaone", architectures=["ExaoneForCausalLM"], num_layers="num_hidden_layers",
                    layer_norm_epsilon="rms_norm_eps", activation_function="hidden_act", embed_dropout=0.0),
        names={"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "model.norm": "transformer.ln_f",
               "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
               "self_attn": "attn.attention", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"}),
    "internlm2": dict(
        config=dict(model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias="attention_bias"),
        names={"embed_tokens": "tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
               "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "self_attn": "attention",
               "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}),
}


def build_model(options, generator):
    options = {key: value for key, value in {**BASE, **options}.items() if value is not ABSENT}
    # Without a padding token, whose row of the embedding would get no gradient.
    config = AutoConfig.for_model(options.pop("family", "llama"), pad_token_id=None, **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.to(torch.float32).eval()  # no family here has dropout by default; eval keeps it so
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if is_norm(name):
                parameter.add_(0.2 * noise)  # to 1, or to 0 if the factor is 1 + w
            else:
                # Wide enough that attention is far from uniform and every gradient matters.
                parameter.copy_((0.1 if name.endswith(".bias") else 0.3) * noise)
    return model


def make_batches(steps, batch, seq_len, vocab, packed, generator):
    """STEPS batches drawn one after the other from one generator; all of them are stored."""

    def uniform(low, high, shape):
        return torch.randint(low, high, shape, generator=generator)

    ids = uniform(0, vocab, (steps, batch, seq_len + 1))
    for t in range(seq_len):  # mostly a rule that can be learned, so that the losses move
        follow = torch.rand((steps, batch), generator=generator) < 0.7
        ids[:, :, t + 1] = torch.where(follow, (3 * ids[:, :, t] + 7) % vocab, ids[:, :, t + 1])
    position = torch.arange(seq_len).expand(steps, batch, seq_len)
    border = uniform(2, seq_len - 1, (steps, batch, 1)) if packed else torch.full((steps, batch, 1), seq_len)
    document = (position >= border).long()
    position = torch.where(document == 1, position - border, position)
    # Unequal masks: few loss tokens in the first sequence, nearly all in the last.
    share = torch.linspace(0.15, 0.95, batch).view(1, batch, 1)
    mask = torch.rand((steps, batch, seq_len), generator=generator) < share
    mask[1, 0, :] = False  # and once a sequence without any
    return dict(tokens=ids[:, :, :-1], targets=ids[:, :, 1:], positions=position, document=document, mask=mask)


def attention_mask(document):
    """[batch, 1, T, T], added to the scores: causal, and within a document."""
    seq_len = document.shape[-1]
    causal = torch.ones(seq_len, seq_len, dtype=torch.bool).tril()
    allowed = causal & (document.unsqueeze(2) == document.unsqueeze(1))
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min).unsqueeze(1)


def forward(model, data, step):
    # A document of its own everywhere is what the library does by itself: leave it to the library.
    packed = bool((data["document"] != 0).any())
    return model(input_ids=data["tokens"][step], position_ids=data["positions"][step], use_cache=False,
                 attention_mask=attention_mask(data["document"][step]) if packed else None).logits


def mean_loss(logits, data, step):
    """Mean over the loss tokens of the whole batch. Targets are given: nothing is shifted."""
    losses = F.cross_entropy(logits.flatten(0, 1), data["targets"][step].flatten(), reduction="none")
    return losses[data["mask"][step].flatten()].mean()


def check_documents_alone(model, data):
    """The packed forward must be that of every document alone."""
    logits = forward(model, data, 0)
    for row in range(logits.shape[0]):
        for document in (0, 1):
            where = data["document"][0, row] == document
            alone = model(input_ids=data["tokens"][0, row][where].unsqueeze(0), use_cache=False).logits[0]
            assert (alone - logits[row][where]).abs().max() < 1e-5, "documents see each other"


def is_norm(name):
    return re.search(r"(norm|\.ln_\w+)\.weight$", name) is not None


def decays(name):
    is_embedding = re.search(r"(embed_tokens|embed_positions|embed_in|word_embeddings|wte|wpe)\.weight$", name) is not None
    return not (is_norm(name) or name.endswith(".bias") or is_embedding)


def train(model, data):
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in parameters.items() if decays(n)], "weight_decay": WEIGHT_DECAY},
         {"params": [p for n, p in parameters.items() if not decays(n)], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(forward(model, data, step), data, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def as_published(family, tensors, config):
    """The tensors of a Llama under a family's names, in the order of the names."""
    renamed = {}
    for name, tensor in tensors.items():
        for of_llama, of_family in PUBLISHED[family]["names"].items():
            name = name.replace(of_llama, of_family)
        renamed[name] = tensor
    if family == "internlm2":  # one tensor has, for each key-value head, its queries, key and value
        for name in [name for name in renamed if "attention.q_proj." in name]:
            q, k, v = (renamed.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj"))
            heads = [part.view(config.num_key_value_heads, -1, *part.shape[1:]) for part in (q, k, v)]
            renamed[name.replace("q_proj", "wqkv")] = torch.cat(heads, dim=1).flatten(0, 1)
    return dict(sorted(renamed.items()))


def publish(family, folder, config):
    """Replaces the folder of a Llama by one as the family publishes it."""
    weights = folder / "model.safetensors"
    save_file(as_published(family, load_file(weights), config), weights, metadata={"format": "pt"})
    fields = json.loads((folder / "config.json").read_text())
    for key, value in PUBLISHED[family]["config"].items():
        fields[key] = fields.pop(value) if isinstance(value, str) and key != "model_type" else value
    for key in ("mlp_bias", "attention_bias", "head_dim"):  # the family has none
        fields.pop(key, None)
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def make(name, options, out):
    options = dict(options)
    published = options.pop("published", None)
    batch, seq_len = options.pop("batch", 4), options.pop("seq_len", 16)
    packed = options.pop("packed", False)
    generator = torch.Generator().manual_seed(1234 + list(VARIANTS).index(name))
    model = build_model(options, generator)
    folder = out / name
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if published is not None:
        publish(published, folder, model.config)
    data = make_batches(STEPS, batch, seq_len, model.config.vocab_size, packed, generator)
    if packed:
        check_documents_alone(model, data)

    logits = forward(model, data, 0)
    loss = mean_loss(logits, data, 0)
    loss.backward()
    rows = torch.linspace(0, batch * seq_len - 1, min(LOGIT_ROWS, batch * seq_len)).long()
    golden = {key: data[key].to(torch.uint8 if key == "mask" else torch.int32) for key in data}
    golden["logit_rows"] = rows.to(torch.int32)
    golden["logits"] = logits.detach().flatten(0, 1)[rows]
    golden["loss"] = loss.detach().double().reshape(1)
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    if options.get("family") == "gpt_neox":
        gradients["embed_out.weight"] = gradients.pop("lm_head.weight")  # as in the folder
    if published is not None:
        gradients = as_published(published, gradients, model.config)
    golden.update({"gradient/" + parameter_name: gradient for parameter_name, gradient in gradients.items()})
    losses, norms = train(model, data)
    assert losses[0] == loss.item() and all(map(math.isfinite, losses))
    golden["losses"] = torch.tensor(losses, dtype=torch.float64)
    golden["grad_norms"] = torch.tensor(norms, dtype=torch.float64)
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norms {min(norms):.2f} to {max(norms):.2f}, "
          f"{sum(f.stat().st_size for f in folder.iterdir())} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("variants", nargs="*", metavar="variant", help=", ".join(VARIANTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.variants) - set(VARIANTS):
        parser.error(f"no variant is named {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for name, options in VARIANTS.items():
        if not arguments.variants or name in arguments.variants:
            make(name, options, arguments.out)


if __name__ == "__main__":
    main()
