"""What torch computes: streams and attention matrices of models, by their own code, in double precision.

`make.py` stores them, and the live tests compare with them where torch and transformers are installed.
"""

import importlib
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

import torch
from transformers import AutoModel
from transformers import modeling_rope_utils as rope

ALBERT = Path("rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k")
CHECKPOINT = Path("tabpfn/models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt")
# The blocks: what comes out of them is the stream, while a norm at the end is no part of it.
BLOCKS = re.compile("(Bert|Roberta|Albert|ViT)Layer|TransformerBlock|GPT2Block|(Llama|Mistral|Qwen2)DecoderLayer")
# The last linear map of attention, whatever its name: what comes out is the velocity that attention gives.
OUTPUT = re.compile(r".*(attention\.output\.dense|attention\.(dense|out_lin|o_proj)|attn\.(c_proj|o_proj))")


class Wide:
    """The module `torch`, where 32 bits are 64: some models cast to 32 on purpose, and would hide their last digits."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float", "float32") else getattr(torch, name)


@contextmanager
def wide(model):
    """Let `model` compute all in 64 bits, with its own code."""
    modules = [sys.modules[name] for name in (type(model).__module__, rope.__name__)]
    narrow = torch.Tensor.float
    for module in modules:
        module.torch = Wide()
    torch.Tensor.float = torch.Tensor.double
    try:
        for part in model.modules():
            if hasattr(part, "inv_freq"):
                kind = model.config.rope_parameters["rope_type"]
                rates = rope.ROPE_INIT_FUNCTIONS.get(kind, getattr(part, "compute_default_rope_parameters", None))
                part.inv_freq = rates(model.config)[0]
        yield
    finally:
        torch.Tensor.float = narrow
        for module in modules:
            module.torch = torch


def load(folder):
    """The model of a folder, without a head for a task, in double precision."""
    return AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()


def streams(model, **inputs):
    """`hidden`, `velocities`, `attentions` and `final` of one input, as arrays; `inputs` have no axis of batches."""
    hidden, velocities = [], []

    def before(_, arguments, named):
        if not hidden:
            hidden.append(arguments[0] if arguments else named["hidden_states"])

    def after(_, arguments, output):
        hidden.append(output[0] if isinstance(output, tuple) else output)

    hooks, watch = [], {"output_attentions": True, "output_hidden_states": True}
    for name, module in model.named_modules():
        if OUTPUT.fullmatch(name):
            hooks += [module.register_forward_hook(lambda _, arguments, output: velocities.append(output))]
        if BLOCKS.fullmatch(type(module).__name__):
            hooks += [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
    try:
        with torch.no_grad(), wide(model):
            out = model(**{k: torch.as_tensor(v)[None] for k, v in inputs.items()}, **watch)
    finally:
        for hook in hooks:
            hook.remove()
    # The hooks see what the model calls hidden states, but for the last one, which may be after a norm.
    assert len(hidden) == len(out.hidden_states) == len(velocities) + 1
    assert all(bool((a == b).all()) for a, b in zip(hidden[:-1], out.hidden_states[:-1], strict=True))
    found = {"hidden": torch.cat(hidden), "velocities": torch.cat(velocities), "attentions": torch.cat(out.attentions)}
    if any(hasattr(model, name) for name in ("ln_f", "layernorm", "norm")):
        found["final"] = out.last_hidden_state[0]
    assert all(v.dtype == torch.float64 for v in found.values())
    return {k: v.numpy() for k, v in found.items()}


def smiles(package, reaction):
    """Token strings and numbers of a reaction, by the regular expression and vocabulary of rxnmapper.

    Its tokenizer class needs an older transformers and a library for chemistry, so its pattern is read from its source.
    """
    source = (package / "rxnmapper/smiles_utils.py").read_text()
    pattern = re.compile(re.search(r'SMI_REGEX_PATTERN = r"(.*)"', source)[1])
    vocabulary = (package / ALBERT / "vocab.txt").read_text().splitlines()
    tokens = ["[CLS]", *pattern.findall(reaction), "[SEP]"]
    return tokens, [vocabulary.index(t if t in vocabulary else "[UNK]") for t in tokens]


def tabpfn(package, checkpoint=None):
    """The set transformer of tabpfn 0.1, by its own code, in double precision, and the configuration of its weights."""
    where = torch.nn.modules.transformer
    # Its `from torch.nn.modules.transformer import *` means the names that this module imports itself.
    names = ("Module", "MultiheadAttention", "Linear", "Dropout", "LayerNorm")
    meant = {name: getattr(torch.nn, name) for name in names}
    meant |= {"torch": torch, "F": torch.nn.functional, "Tensor": torch.Tensor, "Optional": Optional}
    vars(where).update(meant, __all__=list({*where.__all__, *meant}))
    sys.path.insert(0, str(package))
    code = importlib.import_module("tabpfn.transformer")
    weights, _, c = torch.load(checkpoint or package / CHECKPOINT, map_location="cpu", weights_only=True)
    d, width = c["emsize"], c["emsize"] * c["nhid_factor"]
    into, label = torch.nn.Linear(c["num_features"], d), torch.nn.Linear(1, d)
    model = code.TransformerModel(
        into, c["max_num_classes"], d, c["nhead"], width, c["nlayers"], c["dropout"], y_encoder=label,
        efficient_eval_masking=c["efficient_eval_masking"],
    )  # fmt: skip
    names = {k.removeprefix("module."): v for k, v in weights.items()}
    names.pop("criterion.weight")
    model.load_state_dict(names)
    return model.double().eval(), c


def tabpfn_input(table, seen, features):
    """A table as tabpfn's classifier gives it to the model when it transforms no columns: scaled by the rows `seen`."""
    tools = importlib.import_module("tabpfn.utils")
    x = torch.as_tensor(table, dtype=torch.float64)[:, None]
    x = tools.remove_outliers(tools.normalize_data(x, normalize_positions=seen), normalize_positions=seen)
    x = x / (x.shape[-1] / features)
    return torch.nn.functional.pad(x, (0, features - x.shape[-1]))


def tabpfn_streams(model, x, y):
    """`hidden` (L + 1, n, d) and `attentions` (L, H, n, n) of the rows `x`, the first of which have labels `y`."""
    hidden, matrices, n = [], [], len(x)

    def watch(attention):
        compute = attention.forward

        def forward(q, k, v, **_):
            out, matrix = compute(q, k, v, average_attn_weights=False)
            matrices.append(torch.nn.functional.pad(matrix[0], (0, n - matrix.shape[-1])))
            return out, matrix

        attention.forward = forward
        return lambda: setattr(attention, "forward", compute)

    layers = model.transformer_encoder.layers
    undo = [watch(layer.self_attn) for layer in layers]
    undo += [layers[0].register_forward_pre_hook(lambda _, given: hidden.append(given[0][:, 0])).remove]
    undo += [layer.register_forward_hook(lambda _, given, out: hidden.append(out[:, 0])).remove for layer in layers]
    try:
        with torch.no_grad():
            model((x, torch.as_tensor(y, dtype=torch.float64)[:, None]), single_eval_pos=len(y))
    finally:
        for step in undo:
            step()
    # Each layer calls its attention twice: rows with labels, then rows without. Both see only rows with labels.
    rows = [torch.cat(matrices[i : i + 2], 1) for i in range(0, len(matrices), 2)]
    return {"hidden": torch.stack(hidden).numpy(), "attentions": torch.stack(rows).numpy()}
