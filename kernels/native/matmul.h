// y[c][r] = sum over k of w[r][k] x[c][k], with w in one of GGUF's block formats.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Columns that are multiplied with the same matrices; they follow each other in x.
struct hearth_matmul_columns {
    int64_t first, count;
};

struct hearth_matmul_matrix {
    const void *w;
    int64_t rows;
    size_t row_bytes;   // from one row of weights to the next
    int64_t columns;    // which of the sets of columns it is multiplied with
    float *const *y;    // a pointer to rows values for each of them
};

struct hearth_matmul_args {
    int type;           // ggml's number of the weights' format
    int threads;        // at least 1
    int64_t k;          // values in a row, a multiple of the format's block
    const float *const *x;  // a pointer to k values for each column
    int64_t sets;
    const hearth_matmul_columns *set;
    int64_t matrices;
    const hearth_matmul_matrix *matrix;
    void *work;         // hearth_matmul_work() bytes, aligned to 64
};

// Whether such weights can be multiplied.
bool hearth_matmul_takes(int type, int64_t k);

// Bytes of working memory; columns are those of all sets.
size_t hearth_matmul_work(int64_t k, int64_t columns, int64_t sets, int threads);

void hearth_matmul(const hearth_matmul_args *args);
}
