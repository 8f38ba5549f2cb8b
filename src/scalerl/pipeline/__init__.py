"""The pipeline: generators stream, the trainer follows, and no completion gets older than k versions."""
