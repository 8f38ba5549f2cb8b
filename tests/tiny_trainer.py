"""A tiny Llama in transformers' own Trainer, evaluated after every step: its logs and its callbacks are the real ones."""


def tiny_trainer(folder, *, num_rows, max_steps, save_steps, compute_metrics, callbacks=(), **arguments):
    """A trainer of `num_rows` rows of eight tokens that has not run yet, four rows a step, on the CPU."""
    import torch
    import transformers

    tokens = torch.arange(8 * num_rows).reshape(num_rows, 8) % 16
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    shape = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return transformers.Trainer(
        model=transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)),
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=max_steps,
            eval_strategy="steps",
            eval_steps=1,
            save_steps=save_steps,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            include_num_input_tokens_seen=True,
            per_device_train_batch_size=4,
            **arguments,
        ),
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=compute_metrics,
        callbacks=list(callbacks),
    )
