"""Prints answers of llama_cpp.Llama as JSON, for test_llama.py.

usage: reference.py MODEL, in an environment with llama-cpp-python
"""

import json
import sys

TEXTS = ["The quick brown fox", " Größe: 3 × 4\n\n\tif x:", "<|im_start|>user\nHi<|im_end|>\n"]
# The most likely token of each step is ahead by 0.1 at least: less, and rounding decides.
PROMPTS = ["The capital of France is", "1, 2, 3, 4, 5, 6,", "def fibonacci(n):\n"]
MESSAGES = [{"role": "user", "content": "Repeat: one, two, three, four, five, six, seven, eight, nine, ten."}]
TOKENS = 16


def answers(llama, embedder):
    greedy = {"max_tokens": TOKENS, "temperature": 0.0}
    return {
        "tokens": [[llama.tokenize(text.encode(), special=special) for text in TEXTS] for special in (False, True)],
        "texts": [llama.detokenize(llama.tokenize(text.encode())).decode() for text in TEXTS],
        "completions": [llama(prompt, **greedy) for prompt in PROMPTS],
        "echo": llama(PROMPTS[0], echo=True, stop=["."], **greedy),
        "chunks": list(llama(PROMPTS[0], stream=True, **greedy)),
        "chat": llama.create_chat_completion(MESSAGES, **greedy),
        "chat_chunks": list(llama.create_chat_completion(MESSAGES, stream=True, **greedy)),
        "embeddings": embedder.create_embedding(TEXTS[:2]),
        "embed": embedder.embed(TEXTS[0], normalize=True),
        "metadata": llama.metadata,
        "sizes": [llama.n_ctx(), llama.n_vocab(), llama.n_embd(), llama.token_bos(), llama.token_eos()],
    }


if __name__ == "__main__":
    import os

    from llama_cpp import Llama

    out = os.dup(1)
    os.dup2(2, 1)
    options = {"model_path": sys.argv[1], "n_ctx": 512, "n_threads": 1, "verbose": False, "seed": 1}
    options["n_threads_batch"] = 1
    found = answers(Llama(**options), Llama(**options, embedding=True, pooling_type=1))
    with os.fdopen(out, "w") as file:
        json.dump(found, file)
