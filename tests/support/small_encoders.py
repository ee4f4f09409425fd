# SPDX-License-Identifier: Apache-2.0
"""Small pretrained-encoder folders with random weights, as transformers writes them."""

import math

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    "The animal didn't cross the street because it was too tired.",
    "Attention is all you need, and then some more of it.",
    "A kitten rests on a rug while the old dog sleeps below.",
    "Trains to Paris leave at nine, at noon and at half past six.",
    "Yes, no, perhaps: whoever knows shall say so before Monday.",
]
SIZES = dict(vocab_size=200, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80)


def word_pieces():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=150, special_tokens=special))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]")


def angle_brackets(model, trainer):
    """Of the RoBERTa kind: <s>, <pad>, </s> and <unk> are the first pieces."""
    tokenizer = Tokenizer(model)
    if isinstance(model, models.BPE):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", cls_token="<s>",
        sep_token="</s>", unk_token="<unk>")


def byte_pairs():
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return angle_brackets(models.BPE(), trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=sorted(alphabet)))


def unigrams():
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    return angle_brackets(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token="<unk>"))


def families():
    """{name: (model, tokenizer)}, every family and what is particular about it."""
    def albert(groups=1, inner=1, layers=4):
        return transformers.AlbertModel(transformers.AlbertConfig(
            **dict(SIZES, num_hidden_layers=layers), embedding_size=32, num_hidden_groups=groups,
            inner_group_num=inner, max_position_embeddings=64))

    distil = transformers.DistilBertConfig(
        vocab_size=200, dim=48, n_layers=3, n_heads=4, hidden_dim=80, max_position_embeddings=64)
    long = dict(SIZES, max_position_embeddings=300)
    brackets = dict(SIZES, vocab_size=310, max_position_embeddings=66)
    return {
        "bert": (transformers.BertModel(transformers.BertConfig(
            **SIZES, max_position_embeddings=64)), word_pieces()),
        "bert-relu": (transformers.BertModel(transformers.BertConfig(
            **SIZES, max_position_embeddings=64, hidden_act="relu", layer_norm_eps=1e-5)), word_pieces()),
        "bert-head": (transformers.BertForMaskedLM(transformers.BertConfig(
            **SIZES, max_position_embeddings=64, hidden_act="silu")), word_pieces()),
        "roberta": (transformers.RobertaModel(transformers.RobertaConfig(**brackets, type_vocab_size=1)),
                    byte_pairs()),
        "xlm-roberta": (transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**brackets, type_vocab_size=1)),
                        unigrams()),
        "camembert": (transformers.CamembertForMaskedLM(transformers.CamembertConfig(**brackets, type_vocab_size=1)),
                      unigrams()),
        "distilbert": (transformers.DistilBertModel(distil), word_pieces()),
        "distilbert-head": (transformers.DistilBertForSequenceClassification(distil), word_pieces()),
        "mpnet": (transformers.MPNetModel(transformers.MPNetConfig(**long)), word_pieces()),
        "albert": (albert(), word_pieces()),
        "albert-groups": (albert(groups=3, layers=7), word_pieces()),
        "albert-inner": (albert(groups=2, inner=2), word_pieces()),
    }


def randomize(model, seed):
    """Weights as large as those of a trained model: what is drawn for a training hardly attends."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower():
                parameter.copy_(0.2 * torch.randn_like(parameter) + (1.0 if name.endswith("weight") else 0.0))
            elif parameter.dim() == 2 and "embeddings" not in name:
                parameter.copy_(1.5 * torch.randn_like(parameter) / math.sqrt(parameter.shape[1]))
            else:
                parameter.copy_(0.5 * torch.randn_like(parameter))
    return model.eval()


def save_all(folder, seed=7):
    """{name: folder}"""
    saved = {}
    for number, (name, (model, tokenizer)) in enumerate(families().items()):
        saved[name] = folder / name
        randomize(model, seed + number).save_pretrained(saved[name])
        tokenizer.save_pretrained(saved[name])
    return saved
