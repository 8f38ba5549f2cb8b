"""vLLM with the weights of a file in memory, one step at a time. The only file that imports it.

Its scheduler and its model run here, not in a process that runs ahead, so that nothing happens between two steps: the tokens
of a step are of the weights in use as it began, and new weights or a cleared cache meet every request between two tokens.
vLLM's asynchronous engine reaches the same state by pausing: 70 to 90 ms at each update, and an argument that is easily
forgotten (`pause_generation(mode="keep")` clears the cache unless told not to). What this costs is that scheduling does not
overlap with a device's work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from scalerl.engines._vllm_calls import Piece, Token
from scalerl.engines._vllm_start import Start
from scalerl.engines._vllm_weights import Weights

LEAST_BATCHED_TOKENS = 8192
"""Positions that a step may compute, at least: prompts are computed whole, so it must hold the longest sequence."""
TRIAL = Piece("trial", (0,), max_tokens=1, seed=0, salt="trial")


class Server:
    """The engine; its public methods are the calls of `VllmProcess`."""

    def __init__(self, start: Start, *, folder: str) -> None:
        self._start = start
        self._num_computed: Mapping[str, int] = {}
        self._scored_ids: dict[str, int] = {}
        if current_platform.is_cpu():
            torch._dynamo.config.disable = True  # One line of the sampler would take 12 s to compile.
        self._engine = LLMEngine.from_engine_args(_arguments(start, folder=folder))
        self._watch_scheduler()
        self.load()
        self.step([TRIAL], [])  # What vLLM cannot do with a model it may say at the first step only.

    def load(self) -> None:
        """Take the weights that lie in the file. Cached keys stay; salts alone keep new requests from seeing them."""
        self._engine.collective_rpc(_load, args=(self._start.weights,))

    def forget_keys(self) -> None:
        """Clear the cache: the next step computes the keys of all requests in flight anew."""
        self._engine.reset_prefix_cache(reset_running_requests=True)

    def step(self, pieces: Sequence[Piece], aborted: Sequence[str]) -> list[Token]:
        """Give up the `aborted` pieces, take in new ones, and sample a token for every piece that vLLM has room for."""
        self._engine.abort_request(list(aborted))
        for piece in pieces:
            self._add(piece)
        return [self._token(output) for output in self._engine.step()]

    def _add(self, piece: Piece) -> None:
        if piece.scored_id is not None:
            self._scored_ids[piece.name] = piece.scored_id
        parameters = SamplingParams(
            temperature=self._start.temperature,
            seed=piece.seed,
            max_tokens=piece.max_tokens,
            stop_token_ids=list(self._start.stop_ids),
            logprobs=0 if piece.scored_id is None else None,
            logprob_token_ids=None if piece.scored_id is None else [piece.scored_id],
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(piece.name, {"prompt_token_ids": list(piece.token_ids), "cache_salt": piece.salt}, parameters)

    def _token(self, output: Any) -> Token:
        (completion,) = output.outputs
        (token_id,), (log_probs,) = completion.token_ids, completion.logprobs
        asked_id = self._scored_ids.pop(output.request_id, token_id)
        return Token(
            output.request_id,
            token_id,
            log_prob=log_probs[asked_id].logprob,
            num_computed=self._num_computed[output.request_id],
            is_last=output.finished,
        )

    def _watch_scheduler(self) -> None:
        """Note how many positions each step computes: of a prompt vLLM tells it once, of what it computes again never."""
        scheduler = self._engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def noted(*arguments: Any) -> Any:
            output = schedule(*arguments)
            # vLLM appends a dash and a random suffix to each name.
            self._num_computed = {name.rpartition("-")[0]: number for name, number in output.num_scheduled_tokens.items()}
            return output

        scheduler.schedule = noted


def _arguments(start: Start, *, folder: str) -> EngineArgs:
    on_cpu = current_platform.is_cpu()
    return EngineArgs(
        model=folder,
        hf_overrides={"architectures": [start.architecture], "head_dtype": start.head_dtype},
        dtype=start.dtype,
        load_format="dummy",
        skip_tokenizer_init=True,
        logprobs_mode="processed_logprobs",  # Those of the distribution that is sampled, temperature included.
        max_model_len=start.max_model_len,
        max_num_seqs=start.max_num_seqs,
        max_num_batched_tokens=max(LEAST_BATCHED_TOKENS, start.max_model_len),
        # A prompt is computed within one step, so under one version; and on a CPU seeds do not go with parts of prompts.
        enable_chunked_prefill=False,
        enable_prefix_caching=True,
        async_scheduling=False,
        tensor_parallel_size=start.tensor_parallel,
        gpu_memory_utilization=start.gpu_memory_utilization,
        # Told what to take, a CPU starts within seconds; otherwise it fills nearly all memory first.
        kv_cache_memory_bytes=start.cpu_cache_bytes if on_cpu else None,
        enforce_eager=start.enforce_eager or on_cpu,
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )


def _load(worker: Any, weights: Weights) -> None:
    """In each process that holds a part of the model. By the worker's own method: layers may have repacked what they hold."""
    worker.reload_weights(weights_iterator=weights.mapped())
