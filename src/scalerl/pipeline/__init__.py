"""The pipeline: generators stream, the trainer follows, and no completion gets older than k versions.

    PromptQueue --Request--> generator --> grader --> Buffer (oldest first, age rule) --> filters --> trainer --> weights

`Orchestrator` is the only loop there is: synchronous training is k = 0 of it, a simulation is it on a virtual clock.
"""
