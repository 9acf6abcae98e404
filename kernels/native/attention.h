// Attention of new rows to the cells of a cache, with a mask: softmax(q k^T scale + mask) v.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Where vectors lie: a row or cell is row_bytes further than the one before it, a head head_bytes.
struct hearth_vectors {
    const void *data;
    size_t row_bytes, head_bytes;
    int type;        // ggml's number: 0 float32, 1 float16, 8 Q8_0, 30 bfloat16
    int64_t values;  // of a vector
};

struct hearth_attention_args {
    hearth_vectors q, k, v;  // q: float32
    const void *mask;        // float16 [rows, cells], added to the scores; null: none
    size_t mask_bytes;       // from one row of it to the next
    const float *sinks;      // a score for each head that takes part in the sum only; null: none
    float *out;
    size_t out_row_bytes, out_head_bytes;
    int64_t rows, cells, heads, heads_kv;
    float scale, max_bias, softcap;  // max_bias 0: the mask as it is; softcap 0: none
    int threads;
    void *work;  // hearth_attention_work() bytes, aligned to 64
};

// Whether such vectors can be taken; values is that of q and k, values_v that of v.
bool hearth_attention_takes(int type_k, int type_v, int64_t values, int64_t values_v);

size_t hearth_attention_work(const hearth_attention_args *args);

void hearth_attention(const hearth_attention_args *args);
}
