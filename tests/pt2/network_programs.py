"""Networks of torchvision, timm and transformers with random weights: NETWORKS by name.

A maker returns (module, positional arguments, keyword arguments, dynamic_shapes). Small configurations where the package has them.
"""

import torch
from torch.export import Dim

D = Dim.DYNAMIC
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512}
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 128,
        "max_position_embeddings": 64}  # fmt: skip
AUDIO = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
         "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip


def images(module, size, open_dims=(0,)):
    # Scales that begin at 0 or close to it would hide the branches that they multiply, and whole heads.
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and parameter.abs().max() < 1e-3:
                parameter.normal_(std=0.05)
    return module.eval(), (torch.randn(2, 3, size, size),), {}, ({d: D for d in open_dims},)


def torchvision_model(name, size=96, open_dims=(0,), **options):
    import torchvision

    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    model = torchvision.models.get_model(name, weights=None, **options)
    return images(model, size, open_dims)


def timm_model(name, size=None, open_dims=(0,), **options):
    import timm

    model = timm.create_model(name, **options)
    return images(model, size or model.default_cfg["input_size"][-1], open_dims)


def tokens(length=16, least=0, most=100):
    return torch.randint(least, most, (2, length))


def dims_of(inputs):
    return {k: {d: D for d in range(v.dim() if v.dtype == torch.int64 else 1)} if isinstance(v, torch.Tensor) else None
            for k, v in inputs.items()}  # fmt: skip


def transformer(config, model, inputs, fixed=False, **options):
    """A model by the names of its classes; fixed: no size is a symbol."""
    import transformers

    module = getattr(transformers, model)(getattr(transformers, config)(**options)).eval()
    return module, (), inputs, None if fixed else dims_of(inputs)


def auto(kind, cls="AutoModel", **options):
    """A model by its type's name, with the tiny sizes that its configuration knows."""
    import transformers

    try:
        config = transformers.AutoConfig.for_model(kind, **{**TINY, **options})
    except Exception:
        config = transformers.AutoConfig.for_model(kind, **options)
    return config, getattr(transformers, cls).from_config(config).eval()


def text_model(kind, cls="AutoModel", fixed=False, **options):
    config, module = auto(kind, cls, **options)
    inputs = {"input_ids": tokens(least=3)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens(8, least=3)
    if hasattr(config, "use_cache"):
        inputs["use_cache"] = False
    return module, (), inputs, None if fixed else dims_of(inputs)


def causal_model(kind, **options):
    return text_model(kind, "AutoModelForCausalLM", **options)


def image_model(kind, **options):
    config, module = auto(kind, **options)
    size = getattr(config, "image_size", 224)
    size = size if isinstance(size, int) else size[0]
    return module, (), {"pixel_values": torch.randn(2, 3, size, size)}, {"pixel_values": {0: D}}


def audio_model(kind, **options):
    return auto(kind, **options)[1], (), {"input_values": torch.randn(2, 4000)}, None


def channels_last():
    module, (x,), kwargs, dims = torchvision_model("resnet18", 64)
    form = torch.channels_last
    return module.to(memory_format=form), (x.to(memory_format=form),), kwargs, dims


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = torch.nn.Embedding(100, 16), torch.nn.Linear(64, 5)
        self.lstm = torch.nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True)

    def forward(self, ids):
        y, (h, _) = self.lstm(self.embedding(ids))
        return self.out(y), h


def lstm():
    return Tagger().eval(), (torch.randint(0, 100, (2, 7)),), {}, {"ids": {0: D}}


def gru():
    return torch.nn.GRU(16, 32, batch_first=True).eval(), (torch.randn(2, 7, 16), torch.randn(1, 2, 32)), {}, ({0: D}, {1: D})


def mha_encoder():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2).eval(), (torch.randn(2, 7, 32),), {}, {"src": {0: D, 1: D}}


def llama_dyncache():
    from transformers import DynamicCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    inputs = {"input_ids": tokens(1), "use_cache": True}
    module = transformer("LlamaConfig", "LlamaForCausalLM", inputs, num_key_value_heads=2, **SMALL)[0]
    cache = DynamicCache(config=module.config)
    for layer in range(2):
        cache.update(torch.randn(2, 2, 8, 16), torch.randn(2, 2, 8, 16), layer)
    return module, (), {**inputs, "past_key_values": cache}, None


def llama_staticcache():
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    module = transformer("LlamaConfig", "LlamaForCausalLM", {}, num_key_value_heads=2, **SMALL)[0]
    module.generation_config = GenerationConfig(use_cache=True, cache_implementation="static", max_length=64,
                                                cache_config={"batch_size": 1, "max_cache_len": 64})  # fmt: skip
    module.config.use_cache = True
    whole = TorchExportableModuleWithStaticCache(module, batch_size=1, max_cache_len=64, device=torch.device("cpu"))
    return whole, (), {"input_ids": torch.tensor([[1]]), "cache_position": torch.tensor([3])}, None


def whisper():
    inputs = {"input_features": torch.randn(2, 16, 100), "decoder_input_ids": tokens(8), "use_cache": False}
    return transformer("WhisperConfig", "WhisperForConditionalGeneration", inputs, d_model=64, encoder_layers=1, decoder_layers=1,
                       encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
                       vocab_size=512, max_source_positions=50, max_target_positions=32, num_mel_bins=16, pad_token_id=0,
                       bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                       begin_suppress_tokens=None)  # fmt: skip


def clip():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    inputs = {"input_ids": tokens(8), "pixel_values": torch.randn(2, 3, 32, 32),
              "attention_mask": torch.ones(2, 8, dtype=torch.int64)}  # fmt: skip
    return transformer("CLIPConfig", "CLIPModel", inputs, fixed=True, projection_dim=16,
                       text_config={**sizes, "vocab_size": 100, "max_position_embeddings": 16, "eos_token_id": 2},
                       vision_config={**sizes, "image_size": 32, "patch_size": 8})  # fmt: skip


def raft():
    module = torchvision_model("raft_small", 128)[0]
    return module, (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)), {"num_flow_updates": 2}, None


def video():
    module = torchvision_model("mc3_18")[0]
    return module, (torch.randn(1, 3, 4, 32, 32),), {}, None


CAUSAL = {"input_ids": tokens(), "use_cache": False}
BERT = {"input_ids": tokens(), "attention_mask": torch.ones(2, 16, dtype=torch.int64)}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
           "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}  # fmt: skip
DEEPSEEK = {"num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
            "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
            "moe_intermediate_size": 16, "first_k_dense_replace": 0}  # fmt: skip

NETWORKS = {
    "resnet18": lambda: torchvision_model("resnet18", 64, (0, 2, 3)),
    "resnet18_cl": channels_last,
    "mobilenet_v3": lambda: torchvision_model("mobilenet_v3_small", 64),
    "bert": lambda: transformer("BertConfig", "BertModel", BERT, **SMALL),
    "gpt2": lambda: transformer("GPT2Config", "GPT2LMHeadModel", CAUSAL, n_embd=64, n_layer=2, n_head=4, vocab_size=512,
                                n_positions=128, use_cache=False),
    "llama": lambda: transformer("LlamaConfig", "LlamaForCausalLM", CAUSAL, num_key_value_heads=2, **SMALL),
    "llama_dyncache": llama_dyncache,
    "llama_staticcache": llama_staticcache,
    "t5": lambda: transformer("T5Config", "T5ForConditionalGeneration", {**CAUSAL, "decoder_input_ids": tokens(8)}, d_model=64,
                              d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=512),
    "whisper": whisper,
    "vit": lambda: timm_model("vit_tiny_patch16_224", 64, depth=2, img_size=64),
    "convnext": lambda: timm_model("convnext_atto", 64, (0, 2, 3), depths=(1, 1, 2, 1)),
    "swin": lambda: timm_model("swin_tiny_patch4_window7_224", 56, depths=(1, 2), embed_dim=48, num_heads=(2, 4), img_size=56,
                               window_size=7),
    "lstm": lstm,
    "gru": gru,
    "mha_encoder": mha_encoder,
    "moe": lambda: transformer("MixtralConfig", "MixtralForCausalLM", CAUSAL, num_key_value_heads=2, num_local_experts=4,
                               **{**SMALL, "num_hidden_layers": 1}),
    "mamba": lambda: transformer("MambaConfig", "MambaForCausalLM", {"input_ids": tokens(8), "use_cache": False}, fixed=True,
                                 hidden_size=32, num_hidden_layers=1, state_size=8, vocab_size=128),
    "wav2vec2": lambda: transformer("Wav2Vec2Config", "Wav2Vec2ForCTC", {"input_values": torch.randn(2, 800)}, fixed=True,
                                    hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
                                    vocab_size=32, **AUDIO),
    "clip": clip,
    "tv.fcn": lambda: torchvision_model("fcn_resnet50", 64, weights_backbone=None),
    "tv.lraspp": lambda: torchvision_model("lraspp_mobilenet_v3_large", 64, weights_backbone=None),
    "tv.raft": raft,
    "tv.r3d": video,
    "hf.sam_vision_model": lambda: image_model("sam_vision_model"),
}  # fmt: skip

# timm: models that need their own size, and models that take 96 pixels.
OWN_SIZE = ("beit_base_patch16_224 cait_xxs24_224 convit_tiny efficientformer_l1 fastvit_t8 levit_128s mobilevit_xxs pvt_v2_b0 "
            "resmlp_12_224 twins_svt_small volo_d1_224 eva02_tiny_patch14_224 vit_small_patch14_dinov2 "
            "deit_tiny_patch16_224 mixer_s32_224 xcit_nano_12_p16_224 crossvit_tiny_240 gmlp_s16_224 tnt_s_patch16_224 "
            "coat_lite_tiny maxvit_rmlp_pico_rw_256 tiny_vit_5m_224").split()  # fmt: skip
ANY_SIZE = ("cspresnet50 dpn48b ghostnet_100 nfnet_f0 skresnet18 resnetv2_50 efficientnetv2_rw_t convnextv2_atto repvgg_a0 "
            "poolformer_s12 edgenext_xx_small hrnet_w18_small dla34 regnetz_b16 seresnext26d_32x4d").split()  # fmt: skip
NETWORKS |= {f"timm.{n}": lambda n=n: timm_model(n) for n in OWN_SIZE}
NETWORKS |= {f"timm.{n}": lambda n=n: timm_model(n, 96) for n in ANY_SIZE}
VISION = {"alexnet": 96, "densenet121": 96, "googlenet": 96, "mobilenet_v2": 96, "shufflenet_v2_x0_5": 96, "vit_b_16": 224,
          "inception_v3": 299}  # fmt: skip
NETWORKS |= {f"tv.{n}": lambda n=n, s=s: torchvision_model(n, s) for n, s in VISION.items()}

ENCODERS = {
    "albert": {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 64},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "modernbert": {**SPECIAL, "cls_token_id": 1, "sep_token_id": 2},
    "fnet": {},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
    "bart": SEQ2SEQ,
    "roberta": {},
    "electra": {"embedding_size": 16},
    "mpnet": {},
    "xlm-roberta": {},
    "convbert": {},
    "squeezebert": {"embedding_size": 32},
    "megatron-bert": {},
    "roformer": {"embedding_size": 16},
    "nystromformer": {"segment_means_seq_len": 16, "num_landmarks": 4},
    "pegasus": SEQ2SEQ,
    "deberta": {},
    "layoutlm": {},
    "tapas": {},
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64},
    "xlm": {"emb_dim": 32, "n_layers": 1, "n_heads": 4},
    "yoso": {},
    "mra": {},
    "splinter": {},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16},
}
MIXTURE = {"num_key_value_heads": 2, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 16}  # fmt: skip
CAUSALS = {
    "mistral": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt_neox": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "falcon": {},
    "deepseek_v3": DEEPSEEK,
    "olmo2": {},
    "lfm2": {"num_key_value_heads": 2},
    "smollm3": {"num_key_value_heads": 2, **SPECIAL},
    "phi3": {"num_key_value_heads": 2, **SPECIAL},
    "granite": {"num_key_value_heads": 2},
    "qwen2_moe": {"num_key_value_heads": 2, "num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "cohere": {"num_key_value_heads": 2, **SPECIAL},
    "gptj": {"n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 8, "n_positions": 64},
    "bloom": {"n_layer": 1, "n_head": 4},
    "stablelm": {"num_key_value_heads": 2},
    "starcoder2": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3_moe": {**MIXTURE, "head_dim": 8},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt_oss": {**MIXTURE, "head_dim": 8},
    "llama4_text": {**MIXTURE, "head_dim": 8, "intermediate_size_mlp": 64},
    "phimoe": MIXTURE,
    "minimax": {**MIXTURE, "head_dim": 8},
    "granitemoe": MIXTURE,
    "olmoe": MIXTURE,
    "doge": {"num_key_value_heads": 2},
    "diffllama": {"num_key_value_heads": 2},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 1},
    "persimmon": {},
    "ctrl": {"n_embd": 32, "n_layer": 1, "n_head": 4, "dff": 64},
    "falcon_mamba": {"state_size": 8, "fixed": True},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8, "expand": 2, "fixed": True},
    "jamba": {**MIXTURE, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 2,
              "mamba_d_state": 8, "use_mamba_kernels": False, "fixed": True},
}  # fmt: skip
NETWORKS |= {f"hf.{n}": lambda n=n, o=o: text_model(n, **o) for n, o in ENCODERS.items()}
NETWORKS |= {f"hf.{n}": lambda n=n, o=o: causal_model(n, **o) for n, o in CAUSALS.items()}
NETWORKS |= {
    "hf.vit": lambda: image_model("vit"),
    "hf.segformer": lambda: image_model("segformer", depths=[1, 1, 1, 1]),
    "hf.siglip_vision_model": lambda: image_model("siglip_vision_model"),
    "hf.hubert": lambda: audio_model("hubert", **AUDIO),
    "hf.convnext": lambda: image_model("convnext", depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_hidden_layers=4),
    "hf.mobilevit": lambda: image_model("mobilevit"),
    "hf.resnet": lambda: image_model("resnet", depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], embedding_size=8),
    "hf.dinov2": lambda: image_model("dinov2", image_size=56),
}
