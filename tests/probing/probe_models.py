"""Tiny models of every known family, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "initializer_range": 0.3,
}
TEXT = {
    **SIZES,
    "vocab_size": 120,
    "max_position_embeddings": 66,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PLANTED = (1, 2)
"""The layer and head that carry everything in a planted model."""


def make(kind: str, **changed: Any) -> Any:
    """Make a model with random weights; the same every time."""
    import transformers as t

    torch.manual_seed(3)
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 66, "vocab_size": 120, "initializer_range": 0.3}
    gpt2 |= {"bos_token_id": 1, "eos_token_id": 2}
    distil = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "vocab_size": 120, "initializer_range": 0.3}
    distil |= {"max_position_embeddings": 66, "pad_token_id": 0}
    grouped = {**TEXT, "num_key_value_heads": 2, "head_dim": 8} | changed
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 120}
    t5 |= {"initializer_factor": 4.0, "decoder_start_token_id": 0, "pad_token_id": 0}
    images = {**SIZES, "image_size": 8, "patch_size": 4, "num_labels": 5}
    made: dict[str, Any] = {
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**TEXT, **changed)),
        "bert-plain": lambda: t.BertModel(t.BertConfig(**TEXT, **changed)),
        "bert-classes": lambda: t.BertForSequenceClassification(t.BertConfig(**TEXT, num_labels=3, **changed)),
        "roberta": lambda: t.RobertaForMaskedLM(t.RobertaConfig(**TEXT)),
        "xlm-roberta": lambda: t.XLMRobertaForMaskedLM(t.XLMRobertaConfig(**TEXT)),
        "camembert": lambda: t.CamembertForMaskedLM(t.CamembertConfig(**TEXT)),
        "electra": lambda: t.ElectraForMaskedLM(t.ElectraConfig(**TEXT, embedding_size=32)),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**images)),
        "deit": lambda: t.DeiTForImageClassification(t.DeiTConfig(**images)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**{**TEXT, **changed})),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**TEXT, num_key_value_heads=2)),
        "distilbert": lambda: t.DistilBertForMaskedLM(t.DistilBertConfig(**distil)),
        "albert": lambda: t.AlbertForMaskedLM(t.AlbertConfig(**TEXT, embedding_size=16)),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**grouped)),
        "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**grouped)),
        "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**grouped, query_pre_attn_scalar=8)),
        "gemma3_text": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**grouped, query_pre_attn_scalar=8)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(**t5)),
        "t5-encoder": lambda: t.T5EncoderModel(t.T5Config(**t5)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**TEXT, num_key_value_heads=2)),
    }
    return made[kind]().eval()


def batches(kind: str) -> list[dict[str, Tensor]]:
    """Two batches with labels for a model of `make`."""
    draw = torch.Generator().manual_seed(5)
    if kind in ("vit", "deit"):
        return [
            {"pixel_values": torch.randn(3, 3, 8, 8, generator=draw), "labels": torch.tensor([0, 3, 1])}
            for _ in range(2)
        ]
    ids = [torch.randint(3, 120, (3, 9), generator=draw) for _ in range(2)]
    return [{"input_ids": i, "labels": i} for i in ids]


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The model's own."""
    return model(**batch).loss


class Reader(nn.Module):
    """A module with two nn.MultiheadAttention layers, one of them in torch's own encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 32, dropout=0.1, batch_first=True), 1, enable_nested_tensor=True
        )
        self.second = nn.MultiheadAttention(32, 4)  # tokens first
        self.out = nn.Linear(32, 1)
        with torch.no_grad():
            for p in self.parameters():
                p.add_(0.2 * torch.randn(p.shape))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.first(x, src_key_padding_mask=hidden)
        transposed = x.transpose(0, 1)
        return self.out(
            x + self.second(transposed, transposed, transposed, need_weights=False)[0].transpose(0, 1)
        ).mean(1)


def reader_batches() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Two batches with padding."""
    draw = torch.Generator().manual_seed(7)
    hidden = torch.zeros(4, 6, dtype=torch.bool)
    hidden[1, 4:] = True
    return [(torch.randn(4, 6, 32, generator=draw), hidden, torch.randn(4, 1, generator=draw)) for _ in range(2)]


def reader_loss(module: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Mean squared error."""
    return (module(batch[0], batch[1]) - batch[2]).square().mean()


def planted(module: Any) -> Any:
    """Set the output weights of all heads but one to zero, found by name and not by our own table."""
    ends = ("attention.output.dense", "o_proj", "attn.c_proj", "second.out_proj", "self_attn.out_proj")
    found = [part for name, part in module.named_modules() if name.endswith(ends)]
    for i, part in enumerate(found):
        transposed = type(part).__name__ == "Conv1D"
        with torch.no_grad():
            weight = part.weight if transposed else part.weight.T  # [heads × head_dim, out]
            for head in range(4):
                if (i, head) != PLANTED:
                    weight[head * 8 : head * 8 + 8] = 0.0
    assert len(found) == 2
    return module


def tokenizer(folder: Path) -> None:
    """Save a word tokenizer of the built-in text's letters beside a model."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from headcount.probing.text import TEXT as SENTENCES

    made = Tokenizer(models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[MASK]"]
    made.train_from_iterator(
        SENTENCES.splitlines(), trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]"
    ).save_pretrained(folder)
