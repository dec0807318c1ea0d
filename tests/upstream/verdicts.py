"""What each patch is on each release: checked against the real files, and the source of the table in the docs.

States with nothing asked for beyond what is required. CUTLASS DSL with libs-cu13 installed last.
"""

P, N, U, X, A = "pristine", "not-needed", "upstreamed", "not-applicable", "applied"

OF_VLLM = ("P1", "P2", "P3", "P4a", "P4b", "P5", "P6", "P7", "P11", "P12")
VLLM = {
    "0.17.1": (N, P, N, P, P, X, X, P, X, N),
    "0.19.1": (N, P, N, P, P, X, X, P, X, N),
    "0.20.1": (N, P, N, P, P, X, X, P, X, N),
    "0.22.1": (U, P, N, P, P, X, X, P, U, U),
    "0.23.0": (U, P, N, P, P, X, X, U, U, U),
    "0.33.0": (U, P, N, P, P, X, X, U, U, U),
}

OF_FLASHINFER = ("P10", "P13")
FLASHINFER = {
    "0.6.8.post1": (X, X),
    "0.6.9": (N, N),
    "0.6.11.post2": (N, N),
    "0.6.12": (U, N),
    "0.7.2.post1": (U, N),
}

OF_CUTLASS = ("P8", "P9", "P14")
CUTLASS = {
    "4.4.2": (A, P, X),
    "4.5.2": (A, U, X),
    "4.8.0": (U, U, X),
}
