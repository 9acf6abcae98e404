// Products of row-major weights as they lie in a file, for one column or many. Knows shapes that
// Python has checked, no names and no files.
#pragma once
#include <cstdint>

extern "C" {

// data: `rows` rows of k weights, `stride` bytes apart, at any address. type: see types.h: F32,
// F16, BF16, Q8_0, I8, F8_E4M3 or I4; of Q8_0, k is a multiple of 32, of I4 of 64.
struct hearth_matrix {
    const void *data;
    int64_t rows, stride;
    int32_t type;
};

// y [n, rows of all matrices] = x [n, k] by the matrices, transposed. x and y: F32 or BF16, their
// strides in elements. allow_bf16: x and weights may be rounded to bfloat16 where that is faster.
struct hearth_linear_args {
    const struct hearth_matrix *matrices;
    int64_t count, k, n;
    const void *x;
    int64_t x_stride;
    void *y;
    int64_t y_stride;
    int32_t x_type, y_type, allow_bf16, threads;
};

// False where memory is short.
bool hearth_linear(const struct hearth_linear_args *args);
}

namespace hearth {

// out [k] = the first k weights of a row, in float32.
void row_to_f32(int type, const char *row, int64_t k, float *out);

}  // namespace hearth
