"""Reads a folder that transformers saved, continues a sequence token by token, and gets transformers' own tokens.

    python examples/continue_a_transformers_checkpoint.py [FOLDER]

Without a folder a tiny model with random weights is made and saved first: nothing is fetched.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

from mamba2.model.interop import load_language_model

SIZES = {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "num_hidden_layers": 2}
NEW = 12


def save_tiny(folder: Path) -> Path:
    """A model as transformers saves one."""
    torch.manual_seed(0)
    Mamba2ForCausalLM(Mamba2Config(**SIZES, vocab_size=50, chunk_size=16)).save_pretrained(folder)
    return folder


@torch.no_grad()
def continued(folder: Path, prompt: torch.Tensor) -> list[int]:
    """The most likely next tokens by this package: the prompt in one pass, then one step a token."""
    model = load_language_model(folder).eval()
    logits, state = model(prompt, model.initial_state(batch=1))
    tokens = []
    for _ in range(NEW):
        token = logits[:, -1:].argmax(-1)
        tokens.append(token.item())
        logits, state = model.step(token, state)
    return tokens


def main() -> tuple[list[int], list[int]]:
    """The same continuation by this package and by transformers."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else save_tiny(Path(mkdtemp(prefix="mamba2-")))
    prompt = torch.tensor([[3, 14, 15, 9, 2, 6, 5]])
    ours = continued(folder, prompt)

    model = Mamba2ForCausalLM.from_pretrained(folder).eval()
    whole = model.generate(prompt, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    theirs = whole[0, prompt.shape[1] :].tolist()
    print(f"mamba2        {ours}\ntransformers  {theirs}")
    return ours, theirs


if __name__ == "__main__":
    ours, theirs = main()
