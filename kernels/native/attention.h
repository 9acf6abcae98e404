// Flash attention of new tokens over the cells of a cache: softmax(q k^T scale + mask) v.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Vectors of head_dim numbers: that of row or cell i and head h lies at data + i * row_bytes +
// h * head_bytes.
struct hearth_vectors {
    const void *data;
    size_t row_bytes, head_bytes;
    int type;  // ggml's number: F32, F16, BF16 or Q8_0
    int64_t head_dim;
};

struct hearth_attention_args {
    hearth_vectors q, k, v;  // q: F32
    const void *mask;        // float16 [rows, cells], added to the scores; null: none
    size_t mask_row_bytes;   // from one row of it to the next
    const float *sinks;      // [heads]: a score that takes part in the softmax only; null: none
    float *out;              // [rows, heads, head_dim of v]
    size_t out_row_bytes, out_head_bytes;
    int64_t rows, cells, heads, heads_kv;
    float scale, max_bias, softcap;  // max_bias: of ALiBi, 0: the mask as it is; softcap 0: none
    int threads;
    void *workspace;  // hearth_attention_workspace_bytes(), aligned to 64
};

// Whether keys and values of these types and sizes can be taken; q has the head_dim of k.
bool hearth_attention_supports(int k_type, int v_type, int64_t k_head_dim, int64_t v_head_dim);

size_t hearth_attention_workspace_bytes(const struct hearth_attention_args *args);

void hearth_attention(const struct hearth_attention_args *args);
}
