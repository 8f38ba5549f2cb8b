"""The digitised curves of arXiv 2510.13786 and the fits that it prints (examples/data/README.md)."""

import csv
from pathlib import Path

import pytest

from scalerl.core.units import DEVICE_HOURS
from scalerl.records.curve import Curve

DATA = Path(__file__).parents[2] / "examples" / "data"
SCOUT = ("fig1a_model_size", "scout_moe")
RUN_32K = ("fig9a_gen_length", "scalerl_32k_labelled_34k")

TABLE_1 = {
    ("fig10a_batch_size", "bs2048"): "ScaleRL-bs2048",
    ("fig10a_batch_size", "bs768"): "ScaleRL (8B;768;14k;16gen)",
    ("fig11_code", "math_code_run_code_curve"): "math+code code curve",
    ("fig11_math", "math_code_run_math_curve"): "math+code math curve",
    ("fig11_math", "math_only"): "ScaleRL (8B;768;14k;16gen)",
    ("fig17_gens", "16gen"): "ScaleRL (8B;768;14k;16gen)",
    ("fig17_gens", "32gen"): "ScaleRL-32gen",
    ("fig17_gens", "8gen"): "ScaleRL-8gen",
    ("fig1a_8b_bs2048_100k", "scalerl_bs2048"): "ScaleRL-bs2048",
    ("fig1a_model_size", "8b_dense"): "ScaleRL (8B;768;14k;16gen)",
    SCOUT: "ScaleRL-Scout (17Bx16)",
    ("fig9a_gen_length", "scalerl_14k"): "ScaleRL (8B;768;14k;16gen)",
    RUN_32K: "ScaleRL-32k",
}
LEAVE_ONE_OUT = {
    ("fig15a_loo", "loo_length_penalty"): "LOO-length-penalty",
    ("fig15a_loo", "loo_prompt_lvl_adv_norm"): "LOO-prompt-lvl-adv-norm",
    ("fig15a_loo", "scalerl"): "ScaleRL",
    ("fig15b_loo", "loo_batch_no_zero_var_filter"): "LOO-batch (no 0-var filter)",
    ("fig15b_loo", "loo_ppo_offpolicy_8"): "LOO-PPO-off-policy-8",
    ("fig15b_loo", "scalerl"): "ScaleRL",
    ("fig15c_loo", "loo_dapo"): "LOO-dapo",
    ("fig15c_loo", "loo_sample_avg"): "LOO-sample-avg",
    ("fig15c_loo", "scalerl"): "ScaleRL",
}
RECIPES = {
    ("fig2_recipes", "deepseek_grpo"): "DeepSeek (GRPO)",
    ("fig2_recipes", "qwen25_dapo"): "Qwen2.5 (DAPO)",
    ("fig2_recipes", "scalerl"): "ScaleRL",
}
FORKS = {
    ("fig4a_async", "pipelinerl_8"): ("async", "PipelineRL-8"),
    ("fig4a_async", "ppo_offpolicy_1"): ("async", "PPO-off-policy-1"),
    ("fig4a_async", "ppo_offpolicy_8"): ("async", "PPO-off-policy-8"),
    ("fig4b_max_offpolicy", "k4"): ("max off-policy", "PipelineRL k=4"),
    ("fig4b_max_offpolicy", "k8"): ("max off-policy", "PipelineRL k=8"),
    ("fig4b_max_offpolicy", "k12"): ("max off-policy", "PipelineRL k=12"),
    ("fig5a_loss", "cispo"): ("loss", "CISPO"),
    ("fig5a_loss", "dapo"): ("loss", "DAPO (baseline)"),
    ("fig5b_fp32", "default_bf16"): ("fp32", "default"),
    ("fig5b_fp32", "fp32_fix"): ("fp32", "fp32 fix"),
    ("fig6a_zero_variance", "batch"): ("batch def", "batch (baseline)"),
    ("fig6a_zero_variance", "effective_batch"): ("batch def", "effective batch (0-var filter)"),
    ("fig6b_no_positive_resampling", "no_positive_resampling"): ("curriculum", "No-Positive-Resampling"),
    ("fig6b_no_positive_resampling", "uniform_sampling"): ("curriculum", "uniform (baseline)"),
    ("fig14a_loss_aggregation", "prompt_avg"): ("aggregation", "prompt avg"),
    ("fig14a_loss_aggregation", "sample_avg"): ("aggregation", "sample avg (baseline)"),
    ("fig14a_loss_aggregation", "token_avg"): ("aggregation", "token avg"),
    ("fig14b_advantage_norm", "batch_lvl_norm"): ("adv norm", "batch level"),
    ("fig14b_advantage_norm", "no_norm"): ("adv norm", "no norm"),
    ("fig14b_advantage_norm", "prompt_lvl_norm"): ("adv norm", "prompt level (baseline)"),
    ("fig19b_cispo_clip", "clip4"): ("CISPO clip", "eps_max=4"),
    ("fig19b_cispo_clip", "clip5"): ("CISPO clip", "eps_max=5"),
    ("fig19b_cispo_clip", "clip8"): ("CISPO clip", "eps_max=8"),
    ("fig20a_gspo_scale", "gspo_4_3_e-4"): ("GSPO scale", "gspo_4_3_e_4"),
    ("fig20a_gspo_scale", "gspo_4_3_e-3"): ("GSPO scale", "gspo_4_3_e_3"),
    ("fig20a_gspo_scale", "gspo_4_3_e-2"): ("GSPO scale", "gspo_4_3_e_2"),
    ("fig20a_gspo_scale", "gspo_4_3_e-1"): ("GSPO scale", "gspo_4_3_e_1"),
}
PRINTED = {
    **{series: ("scaling axes", run) for series, run in TABLE_1.items()},
    **{series: ("LOO", run) for series, run in LEAVE_ONE_OUT.items()},
    **{series: ("recipes", run) for series, run in RECIPES.items()},
    **FORKS,
}
"""(figure, series) of every digitised curve whose fit is printed -> (group, run) of that fit."""


class Paper:
    """The digitised curves and printed fits."""

    series = tuple(PRINTED)
    run_32k = RUN_32K

    def __init__(self) -> None:
        self.points = _rows("scalerl_paper_points.csv")
        self.fits = _rows("scalerl_paper_fits.csv")

    def curve(self, figure: str, series: str, *, kind: str = "") -> Curve:
        """One digitised series, or only its points of `kind`."""
        rows = [row for row in self.points if (row["figure_key"], row["series"]) == (figure, series) and kind in ("", row["kind"])]
        return Curve.of(series, DEVICE_HOURS, [float(row["gpu_hours"]) for row in rows], [float(row["pass_rate"]) for row in rows])

    def printed_A(self, figure: str, series: str) -> float:
        """The asymptote that the paper prints for the series."""
        (row,) = [row for row in self.fits if (row["group"], row["run"]) == PRINTED[figure, series]]
        return float(row["A"])

    def R0(self, figure: str, series: str) -> float:
        """The start level that the printed fits imply: .40 for the 8B runs, .505 for Scout."""
        return 0.505 if (figure, series) == SCOUT else 0.40


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def paper() -> Paper:
    return Paper()
