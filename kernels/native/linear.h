// Products of row-major weights as they lie in a file, for one column or many. Knows shapes that
// Python has checked, no names and no files.
#pragma once
#include <cstdint>

extern "C" {

// rows of `stride` bytes each, k weights in each; type is ggml's number: F32, F16, Q8_0 or BF16. Of
// Q8_0, k is a multiple of 32.
struct hearth_matrix {
    const void *data;
    int64_t rows, stride;
    int32_t type;
};

// y[n, rows of all matrices] = x[n, k] times the matrices, transposed. x and y are F32 or BF16, their
// strides in elements. narrow: what is multiplied may be rounded to bfloat16 where that is faster.
struct hearth_product {
    const struct hearth_matrix *matrices;
    int64_t count, k, n;
    const void *x;
    int64_t x_stride;
    void *y;
    int64_t y_stride;
    int32_t x_type, y_type, narrow, threads;
};

// False where memory is short.
bool hearth_linear(const hearth_product *product);
}

namespace hearth {

// Weights 0 to k of the row at `row`.
void widen(int type, const char *row, int64_t k, float *out);

}  // namespace hearth
