"""The configuration of the bundled model: the real Qwen2.5-VL architecture at 4.7 M parameters.

Three choices matter beyond the sizes. Every vision block attends fully (windows would only cost
time on 144 patches). And `rope_theta` of the decoder is small: M-RoPE gives the last section of
frequencies to the column of an image token, and with the usual 10,000 those turn by .003 of a
radian a column at most (with 1,000,000 by .0002), so that a small decoder cannot tell columns
apart; with 100 they turn by .01 to .06 and the longest wavelength (540 tokens) still covers the
context that the model is trained on.
The decoder is deep and narrow: a pass over one row then waits for layers rather than for
arithmetic, as it does on a GPU, and more rows cost little.
"""

from __future__ import annotations

from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from recap.demo.draw import SIDE

PATCH, MERGE = 14, 2
GRID = SIDE // (PATCH * MERGE)  # merged tokens a side
IMAGE_TOKENS = GRID * GRID
VISION_WIDTH = 160
TEXT_WIDTH = 192
MAX_PARAMETERS = 4_900_000


def build_config(vocab_size: int, special_ids: dict[str, int]) -> Qwen2_5_VLConfig:
    """The configuration for a tokenizer of `vocab_size` ids with these special tokens."""
    pad, end = special_ids["<|endoftext|>"], special_ids["<|im_end|>"]
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": vocab_size,
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": 384,
            "num_hidden_layers": 8,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "max_position_embeddings": 1024,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 100.0,
                "mrope_section": [8, 12, 12],
            },
            "bos_token_id": pad,
            "eos_token_id": end,
            "pad_token_id": pad,
            "tie_word_embeddings": True,
            "initializer_range": 0.03,
        },
        vision_config={
            "depth": 4,
            "hidden_size": VISION_WIDTH,
            "intermediate_size": 400,
            "num_heads": 5,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "window_size": SIDE,
            "fullatt_block_indexes": [0, 1, 2, 3],
            "out_hidden_size": TEXT_WIDTH,
        },
        image_token_id=special_ids["<|image_pad|>"],
        video_token_id=special_ids["<|video_pad|>"],
        vision_start_token_id=special_ids["<|vision_start|>"],
        vision_end_token_id=special_ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def build_model(vocab_size: int, special_ids: dict[str, int]) -> Qwen2_5_VLForConditionalGeneration:
    """A freshly initialised float32 model (seed torch before calling)."""
    model = Qwen2_5_VLForConditionalGeneration(build_config(vocab_size, special_ids))
    total = sum(p.numel() for p in model.parameters())
    if total > MAX_PARAMETERS:
        raise ValueError(f"{total} parameters exceed the budget of {MAX_PARAMETERS}")
    return model
