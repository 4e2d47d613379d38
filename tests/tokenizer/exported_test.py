#!/usr/bin/env python3
"""What transformers reads of an exported model: the ids of special tokens, the generation config, the tokenizer.

    exported_test.py TRAINCTL

The folder that the model came from is gone by then. Without the packages it is skipped (exit code 77); run.sh has
them installed.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["USE_TORCH"] = "0"
try:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TRAINCTL = os.path.abspath(sys.argv[1])
TEXT = "the quick brown fox jumps over the lazy dog; naïve café, 你好 👋🏽 <|endoftext|>\n"
RECIPE = """recipe_version = 1
[run]
name = "exported"
[model]
{model}
[data]
tokenizer = "{tokenizer}"
seq_len = 32
[[data.train]]
files = ["text.txt"]
[train]
steps = 1
batch_sequences = 1
precision = "fp32"
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 320,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 5,
    "eos_token_id": [0, 300, 301], "pad_token_id": 302, "use_cache": False, "layer_types": ["full_attention"],
    "attention_dropout": 0.1, "transformers_version": "4.56.0",
}
GENERATION = {"bos_token_id": 5, "eos_token_id": [0, 300], "pad_token_id": 302, "temperature": 0.6, "top_p": 0.9,
              "do_sample": True}
TEMPLATE = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def trainctl(*args):
    done = subprocess.run([TRAINCTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("trainctl %s: exit %d\n%s" % (" ".join(args), done.returncode, done.stderr))
    return done.stdout


def check(what, got, wanted):
    if got != wanted:
        sys.exit("%s: %r is not %r" % (what, got, wanted))


def train(name, model, tokenizer, *options):
    with open(name + ".toml", "w", encoding="utf-8") as file:
        file.write(RECIPE.format(model=model, tokenizer=tokenizer))
    trainctl("launch", name + ".toml", "--run-dir", name, *options)


def export(run):
    """The exported folder, whose every file the command has named."""
    said = trainctl("checkpoint", "export", run, "--out", run + "-model")
    for name in os.listdir(run + "-model"):
        check("what export says of " + name, name in said, True)
    return run + "-model"


def check_ids(folder):
    config = AutoConfig.from_pretrained(folder)
    check("ids of " + folder, [getattr(config, key) for key in IDS], [CONFIG[key] for key in IDS])
    generation = GenerationConfig.from_pretrained(folder).to_dict()
    check("generation of " + folder, {key: generation[key] for key in GENERATION}, GENERATION)


def check_tokenizer(folder, source):
    ours, theirs = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(source)
    check("class", type(ours), type(theirs))
    check("ids of a text", ours(TEXT)["input_ids"], theirs(TEXT)["input_ids"])
    check("special tokens", (ours.bos_token, ours.eos_token, ours.pad_token), ("<s>", "<|endoftext|>", None))
    messages = [{"role": "user", "content": "hello"}]
    check("chat", ours.apply_chat_template(messages, tokenize=False), "[user] hello\n")


def make_source():
    """A folder as transformers writes it, of a tokenizer of our own with two special tokens."""
    os.mkdir("source")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file="own.json", eos_token="<|endoftext|>", bos_token="<s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained("source")
    for name, values in (("config.json", CONFIG), ("generation_config.json", GENERATION)):
        with open("source/" + name, "w", encoding="utf-8") as file:
            json.dump(values, file)


def of_a_folder_that_is_gone():
    make_source()
    shutil.copytree("source", "source-kept")
    train("run", 'from = "source"', "source/tokenizer.json")
    shutil.rmtree("source")
    folder = export("run")
    check_ids(folder)
    with open(folder + "/config.json", encoding="utf-8") as file:
        check("config.json of " + folder, list(json.load(file).items()), [*CONFIG.items(), ("torch_dtype", "float32")])
    check_tokenizer(folder, "source-kept")
    trainctl("generate", "run", "--prompt", "the quick", "--max-tokens", "3")  # by the run's own copy
    # A run that begins with a checkpoint of it hands them on.
    shutil.copytree("source-kept", "source")
    dimensions = "family = \"llama\"\n" + "\n".join(
        f"{ours} = {CONFIG[theirs]}" for ours, theirs in (
            ("layers", "num_hidden_layers"), ("hidden", "hidden_size"), ("heads", "num_attention_heads"),
            ("kv_heads", "num_key_value_heads"), ("ffn", "intermediate_size"), ("vocab", "vocab_size")))
    train("next", dimensions + '\nweights = "run/checkpoints/step-00000001"', "source/tokenizer.json")
    check_ids(export("next"))


def of_a_tokenizer_alone():
    train("alone", 'preset = "toy-1m"', "own.json")
    folder = export("alone")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT)["input_ids"]
    ours = subprocess.run([TRAINCTL, "tokenizer", "encode", "own.json"], input=TEXT, stdout=subprocess.PIPE, text=True)
    check("ids of a text", ids, [int(word) for word in ours.stdout.split()])
    check("text of the ids", tokenizer.decode(ids), TEXT)
    check("end", (tokenizer.eos_token, tokenizer.eos_token_id), ("<|endoftext|>", AutoConfig.from_pretrained(folder).eos_token_id))


def of_qwen2_with_another_pre_tokenizer():
    """AutoTokenizer cuts as Qwen does, whatever the file says; export says so, and what loads the tokenizer as it is."""
    os.mkdir("qwen2")
    qwen2 = {**CONFIG, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    with open("qwen2/config.json", "w", encoding="utf-8") as file:
        json.dump(qwen2, file)
    train("qwen2-run", 'from = "qwen2"', "own.json")
    said = subprocess.run([TRAINCTL, "checkpoint", "export", "qwen2-run", "--out", "qwen2-model"], stderr=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, text=True).stderr
    check("note of export\n" + said, "PreTrainedTokenizerFast.from_pretrained" in said, True)
    auto, own = (kind.from_pretrained("qwen2-model") for kind in (AutoTokenizer, PreTrainedTokenizerFast))
    digits = "in 2024 and 2025"
    ours = subprocess.run([TRAINCTL, "tokenizer", "encode", "own.json"], input=digits, stdout=subprocess.PIPE, text=True).stdout
    check("ids of a text", own(digits)["input_ids"], [int(word) for word in ours.split()])
    check("pre-tokenizers differ", str(auto.backend_tokenizer.pre_tokenizer) != str(own.backend_tokenizer.pre_tokenizer), True)


def of_bytes():
    train("bytes", 'preset = "toy-1m"\nvocab = 256', "byte")
    config = AutoConfig.from_pretrained(export("bytes"))
    check("ids of bytes", [getattr(config, key) for key in IDS], [None, None, None])


def of_the_end_that_was_trained():
    """A chat model's end is not the tokenizer's first known one. No tokenizer is stated: the folder's own is taken."""
    shutil.copytree("run-model", "chat")
    edit("chat/tokenizer.json", lambda file: file["added_tokens"].append(
        {"id": 301, "content": "<|im_end|>", "special": True, "normalized": False, "single_word": False, "lstrip": False,
         "rstrip": False}))
    edit("chat/tokenizer_config.json", lambda config: config.update(eos_token="<|im_end|>"))
    for name in ("config.json", "generation_config.json"):
        edit("chat/" + name, lambda config: config.update(eos_token_id=301))
    with open("answers.jsonl", "w", encoding="utf-8") as file:
        file.write('{"prompt": "the quick", "text": " brown fox"}\n' * 8)
    with open("chat.toml", "w", encoding="utf-8") as file:
        file.write(RECIPE.format(model='from = "chat"\nweights = "from"', tokenizer="").replace('tokenizer = ""\n', "").replace(
            '["text.txt"]', '["answers.jsonl"]\nprompt_field = "prompt"'))
    for end, wanted in (("", [301]), ("<|endoftext|>", [0, 301])):
        stated = ["--set", "data.end_of_document='%s'" % end] if end else []
        batch = json.loads(trainctl("data", "batch", "chat.toml", "--step", "1", "--json", *stated))["sequences"][0]
        lengths = [batch["document"].count(number) for number in (0, 1)]
        check("last token", batch["tokens"][lengths[0] - 1], wanted[0])
        check("the end counts", batch["loss_mask"][lengths[0] - 2], 1)
        launched = subprocess.run([TRAINCTL, "launch", "chat.toml", "--run-dir", "answers" + end[2:5], *stated],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(launched.stdout, launched.returncode, 0)
        check("note about the end\n" + launched.stdout, "but eos_token_id of the model is 301" in launched.stdout, bool(end))
        check("note about samples", "8 documents packed whole; none is longer than 32 tokens" in launched.stdout, True)
        folder = export("answers" + end[2:5])
        for found in (AutoConfig.from_pretrained(folder).eos_token_id, GenerationConfig.from_pretrained(folder).eos_token_id):
            check("eos_token_id", found if isinstance(found, list) else [found], wanted)
    shutil.copytree("chat", "other")
    edit("other/tokenizer_config.json", lambda config: config.update(eos_token="<|endoftext|>"))
    trainctl("data", "prepare", "answers.jsonl", "--tokenizer", "other", "--end-of-document", "--out", "ended")
    said = subprocess.run([TRAINCTL, "launch", "chat.toml", "--dry-run", "--set", "data.train=[{files=['%s/ended.bin']}]" % os.getcwd()],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    check("note about prepared data\n" + said,
          "ended.bin end with <|endoftext|> (0), but the model ends a text with <|im_end|> (301)" in said, True)


def edit(path, change):
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    change(values)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)


def main():
    with tempfile.TemporaryDirectory(prefix="trainctl-exported-") as folder:
        os.chdir(folder)
        with open("text.txt", "w", encoding="utf-8") as file:
            file.write(TEXT * 200)
        trainctl("tokenizer", "train", "text.txt", "--vocab", "300", "--out", "own.json")
        for case in (of_a_folder_that_is_gone, of_a_tokenizer_alone, of_qwen2_with_another_pre_tokenizer, of_bytes, of_the_end_that_was_trained):
            case()
            print("ok", case.__name__)


if __name__ == "__main__":
    main()
