"""vLLM's side of `engine_speed.py`, run by a Python that has vLLM: prints its tokens per CPU-second as the last line.

    VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS=1 .venv-vllm/bin/python benchmarks/_vllm_speed.py FOLDER

FOLDER holds a model and `work.json`: {prompts: token ids of each request, num_tokens: of each completion, slots}. Everything
runs in this process, so that its CPU-seconds are those of vLLM. No log-probs are asked for, and the prefix cache is off: no
two prompts are the same.
"""

import json
import statistics
import sys
import time
from pathlib import Path

from vllm import LLM, SamplingParams

NUM_TURNS = 3
CACHE_BYTES = 2**30


def main() -> None:
    """Sample all requests a few times; the median counts."""
    folder = Path(sys.argv[1])
    work = json.loads((folder / "work.json").read_text())
    longest = max(map(len, work["prompts"])) + max(work["num_tokens"])
    llm = LLM(
        str(folder),
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=longest,
        max_num_seqs=work["slots"],
        kv_cache_memory_bytes=CACHE_BYTES,
        enable_prefix_caching=False,
        enforce_eager=True,
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in work["prompts"]]
    settings = [SamplingParams(max_tokens=num, min_tokens=num, ignore_eos=True, detokenize=False) for num in work["num_tokens"]]
    rates = []
    for _ in range(NUM_TURNS):
        started_s = time.process_time()
        outputs = llm.generate(prompts, settings, use_tqdm=False)
        rates.append(sum(len(output.outputs[0].token_ids) for output in outputs) / (time.process_time() - started_s))
    assert [len(output.outputs[0].token_ids) for output in outputs] == work["num_tokens"]
    print(statistics.median(rates))


if __name__ == "__main__":
    main()
