"""The objective: losses, advantages, aggregations and length control, as pure functions of tensors.

    rho_it = exp(log pi(y_it) - log pi_gen(y_it))          A_i = r_i - mean_j r_j          no KL term anywhere

pi_gen is the generator with the version that sampled each token; pi is the policy in training (arXiv 2510.13786, section 2).
"""
