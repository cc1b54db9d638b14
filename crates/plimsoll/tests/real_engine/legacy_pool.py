"""Computes a prompt of so many tokens with llama.cpp's library, in the flags of the report: -c 262144 -ctk q4_0 -ctv q4_0
-b 1024 -ub 128 -fa on."""

import sys

import cyllama.llama.llama_cpp as llama

BATCH = 1024
Q4_0 = 2

model, tokens = sys.argv[1], int(sys.argv[2])
llama.ggml_backend_load_all()
loading = llama.LlamaModelParams()
loading.n_gpu_layers = 99
weights = llama.LlamaModel(model, loading)
flags = llama.LlamaContextParams()
flags.n_ctx, flags.n_batch, flags.n_ubatch, flags.n_seq_max = 262144, BATCH, 128, 1
flags.type_k = flags.type_v = Q4_0
flags.flash_attn_type = 1
flags.n_threads = flags.n_threads_batch = 1
context = llama.LlamaContext(weights, flags)
for start in range(0, tokens, BATCH):
    end = min(start + BATCH, tokens)
    context.decode(llama.llama_batch_get_one([300 + n * 7919 % 20000 for n in range(start, end)], start))
    print("at", end, flush=True)
