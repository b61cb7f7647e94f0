"""Networks that training.py trains: {name: (make, data)}; data() gives the input and the labels.

MAIN are the ones whose figures FIGURES.md has. The others are those of many families, transformers with few layers.
"""

import torch
import torchvision.models as vision
import transformers as T
from torch import nn


class Logits(nn.Module):
    def __init__(self, model, **more):
        super().__init__()
        self.model, self.more = model, more

    def forward(self, x):
        return self.model(x, return_dict=False, **self.more)[0]


class Padded(Logits):
    """Of ids, 0 is padding."""

    def forward(self, x):
        return self.model(x, attention_mask=(x > 0).long(), return_dict=False)[0]


class Seq2Seq(Logits):
    def forward(self, x):
        return self.model(input_ids=x, decoder_input_ids=x, use_cache=False, return_dict=False)[0]


class Recurrent(nn.Module):
    def __init__(self, words=10000, size=512):
        super().__init__()
        self.embed, self.out = nn.Embedding(words, size), nn.Linear(size, words)
        self.lstm = nn.LSTM(size, size, 2, batch_first=True)

    def forward(self, x):
        return self.out(self.lstm(self.embed(x))[0])


def block(inputs, outputs):
    layers = []
    for count in (inputs, outputs):
        layers += [nn.Conv2d(count, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, c=32, classes=10):
        super().__init__()
        self.down = nn.ModuleList([block(3, c), block(c, 2 * c), block(2 * c, 4 * c)])
        self.middle, self.pool = block(4 * c, 8 * c), nn.MaxPool2d(2)
        sizes = (4 * c, 2 * c, c)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * s, s, 2, 2) for s in sizes])
        self.join = nn.ModuleList([block(2 * s, s) for s in sizes])
        self.out = nn.Conv2d(c, classes, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            kept.append(down(x))
            x = self.pool(kept[-1])
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept)):
            x = join(torch.cat([up(x), skip], 1))
        return self.out(x).permute(0, 2, 3, 1)


MAIN = ["gpt2", "gpt2_1024", "resnet50", "vit_b_16", "bert", "bert_padded", "swin_t", "llama_1b"]
PLAIN = dict(use_cache=False, attn_implementation="sdpa")
LLAMA_1B = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=True)  # fmt: skip


def causal(kind, layers=4, words=8000, size=768, heads=12, **more):
    """A causal language model of transformers."""
    config = dict(num_hidden_layers=layers, hidden_size=size, vocab_size=words, num_attention_heads=heads)
    config |= dict(intermediate_size=4 * size) | PLAIN | more
    return lambda: Logits(getattr(T, kind + "ForCausalLM")(getattr(T, kind + "Config")(**config)))


def gpt2():
    return Logits(T.GPT2LMHeadModel(T.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **PLAIN)))


def bert():
    none = dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return Logits(T.BertForSequenceClassification(T.BertConfig(num_labels=2, **none)))


def padded_bert():
    return Padded(T.BertForMaskedLM(T.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0)))


def distilbert():
    return Padded(T.DistilBertForMaskedLM(T.DistilBertConfig(dropout=0, attention_dropout=0)))


def deberta():
    relative = dict(relative_attention=True, pos_att_type=["p2c", "c2p"])
    return Logits(T.DebertaV2ForMaskedLM(T.DebertaV2Config(
        num_hidden_layers=4, hidden_size=768, num_attention_heads=12, intermediate_size=3072, vocab_size=8000,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, **relative)))  # fmt: skip


def head(size, words):
    """A layer, so that the head's input has a gradient, and the head."""
    return lambda: nn.Sequential(nn.Linear(size, size, bias=False), nn.Linear(size, words, bias=False))


def networks():
    def tokens(words, *shape):
        return lambda: (torch.randint(1, words, shape), torch.randint(0, words, shape))

    def rows(count, size, words):
        return lambda: (torch.randn(count, size), torch.randint(0, words, (count,)))

    def images(batch, classes=1000):
        return lambda: (torch.randn(batch, 3, 224, 224), torch.randint(0, classes, (batch,)))

    def padded(words, batch, length):
        def data():
            x, t = tokens(words, batch, length)()
            for row in range(batch):
                x[row, length - row * length // (2 * batch) :] = 0
            return x, t

        return data

    return {
        "gpt2": (gpt2, tokens(50000, 8, 512)),
        "gpt2_1024": (gpt2, tokens(50000, 4, 1024)),
        "resnet50": (vision.resnet50, images(64)),
        "vit_b_16": (vision.vit_b_16, images(32)),
        "bert": (bert, lambda: (torch.randint(0, 30000, (32, 128)), torch.randint(0, 2, (32,)))),
        "bert_padded": (padded_bert, padded(30000, 8, 512)),
        "swin_t": (vision.swin_t, images(32)),
        "llama_1b": (lambda: Logits(T.LlamaForCausalLM(T.LlamaConfig(**LLAMA_1B, **PLAIN))), tokens(128000, 1, 2048)),
        "head_50k": (head(768, 50257), rows(4096, 768, 50257)),
        "head_128k": (head(2048, 128256), rows(8192, 2048, 128256)),
        "convnext_t": (vision.convnext_tiny, images(32)),
        "efficientnet_b0": (vision.efficientnet_b0, images(64)),
        "mobilenet_v3": (vision.mobilenet_v3_large, images(64)),
        "densenet121": (vision.densenet121, images(32)),
        "regnet_y_400mf": (vision.regnet_y_400mf, images(64)),
        "shufflenet_v2": (vision.shufflenet_v2_x1_0, images(64)),
        "vgg11_bn": (vision.vgg11_bn, images(32)),
        "maxvit_t": (vision.maxvit_t, images(16)),
        "unet": (UNet, lambda: (torch.randn(8, 3, 256, 256), torch.randint(0, 10, (8, 256, 256)))),
        "lstm": (Recurrent, tokens(10000, 32, 64)),
        "t5": (lambda: Seq2Seq(T.T5ForConditionalGeneration(T.T5Config(num_layers=4, dropout_rate=0))), tokens(8000, 8, 256)),
        "distilbert": (distilbert, padded(30000, 16, 256)),
        "deberta": (deberta, tokens(8000, 8, 256)),
        "mistral": (causal("Mistral", size=1024, heads=16, num_key_value_heads=4, sliding_window=256), tokens(8000, 2, 1024)),
        "qwen3": (causal("Qwen3", size=1024, heads=16, num_key_value_heads=8, head_dim=128), tokens(8000, 2, 1024)),
        "gemma2": (causal("Gemma2", heads=8, num_key_value_heads=4, head_dim=64, attn_implementation="eager"),
                   tokens(8000, 2, 512)),
        "bloom": (lambda: Logits(T.BloomForCausalLM(T.BloomConfig(n_layer=4, hidden_size=768, n_head=12, vocab_size=8000,
                                                                  use_cache=False))), tokens(8000, 2, 512)),
    }  # fmt: skip
