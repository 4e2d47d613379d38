"""Tiny models in the folders that transformers writes, and what transformers computes with them.

`run(job)` makes a folder for each entry of `job["models"]` (by name: `class`, `config`, `dtype`, `shard`) and returns, by
name: `loss` and `tokens` of the documents cut into sequences of `job["seq_len"]`, `answer_loss` and `answer_tokens` of
their texts after their prompts, each document by itself, and `ids`, the tokens that greedily follow `job["prompt"]`.
"""

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BEGIN, END = "<s>", "</s>"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def make_tokenizer(texts, vocab):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[BEGIN, END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=BEGIN + " $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))])
    return tokenizer


def make_folder(name, entry, tokenizer, std):
    """Uses weights so wide that attention is far from uniform and the most likely token leads clearly."""
    config = getattr(transformers, entry["class"] + "Config")(
        **entry["config"], bos_token_id=tokenizer.token_to_id(BEGIN), eos_token_id=tokenizer.token_to_id(END))
    torch.manual_seed(1)
    model = getattr(transformers, entry["class"] + "ForCausalLM")(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = std * torch.randn(parameter.shape)
            parameter.copy_(1.0 + noise if parameter_name.endswith("norm.weight") else noise)
    model.to(getattr(torch, entry["dtype"])).save_pretrained(name, max_shard_size=entry["shard"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END).save_pretrained(name)


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").eval()


def losses(model, tokens, targets):
    """Of each target, in double precision; the tokens are a text from its beginning."""
    logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :len(targets)].double()
    return (-logits.log_softmax(-1))[range(len(targets)), targets].tolist()


def sequences_loss(model, documents, seq_len):
    """Joins the documents and cuts them every `seq_len` tokens. A token sees the earlier tokens of its document in its
    sequence, and predicts the next token of its document, even if that is in the next sequence."""
    stream = [(token, i == 0) for document in documents for i, token in enumerate(document)]
    found = []
    for first in range(0, len(stream), seq_len):
        begin = first
        for end in range(first + 1, min(first + seq_len, len(stream)) + 1):
            if end == min(first + seq_len, len(stream)) or stream[end][1]:
                has_next = end < len(stream) and not stream[end][1]
                tokens = [token for token, _ in stream[begin:end]]
                found += losses(model, tokens, tokens[1:] + ([stream[end][0]] if has_next else []))
                begin = end
    return found


def answers_loss(model, tokenizer, pairs, end):
    """Does not count the leading tokens that the prompt has when it is encoded by itself."""
    found = []
    for prompt, text in pairs:
        alone, tokens = tokenizer.encode(prompt).ids, tokenizer.encode(prompt + text).ids + [end]
        common = next((i for i, (a, b) in enumerate(zip(alone, tokens)) if a != b), len(alone))
        found += losses(model, tokens, tokens[1:])[max(common, 1) - 1:]
    return found


def follow(model, ids, count):
    with torch.inference_mode():
        told = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                              do_sample=False, max_new_tokens=count, pad_token_id=0)
    return told[0, len(ids):].tolist()


def add_an_end(name, prompt_ids, count):
    """Gives the folder a second end of a text: the token that comes as late as possible for the first time."""
    model = load(name)
    model.generation_config.eos_token_id = None
    ids = follow(model, prompt_ids, count)
    end = max(ids, key=ids.index)
    config = transformers.GenerationConfig.from_pretrained(name)
    config.eos_token_id = [config.eos_token_id, end]
    config.save_pretrained(name)
    return end


def run(job):
    texts = [document["text"] for document in job["documents"]]
    tokenizer = make_tokenizer(texts, job["vocab"])
    end = tokenizer.token_to_id(END)
    prompt_ids = tokenizer.encode(job["prompt"]).ids
    told = {}
    for name, entry in job["models"].items():
        make_folder(name, entry, tokenizer, job["init_std"])
        last = add_an_end(name, prompt_ids, job["count"])
        model = load(name)
        with torch.inference_mode():
            whole = sequences_loss(model, [tokenizer.encode(text).ids + [end] for text in texts], job["seq_len"])
            answers = answers_loss(model, tokenizer, [(document["prompt"], document["text"]) for document in job["documents"]],
                                   end)
        ids = follow(model, prompt_ids, job["count"])
        told[name] = {"loss": sum(whole) / len(whole), "tokens": len(whole), "answer_loss": sum(answers) / len(answers),
                      "answer_tokens": len(answers), "ids": ids, "last": last}
    return told
