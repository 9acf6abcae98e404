// y[c][r] = sum over k of w[r][k] x[c][k], with w in one of GGUF's block formats.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A matrix of weights and how many of the columns are multiplied with it.
struct hearth_matmul_group {
    const void *w;
    int64_t columns;
};

struct hearth_matmul_args {
    int type;           // ggml's number of the weights' format
    int threads;        // at least 1
    int64_t rows;       // of each matrix
    int64_t k;          // values in a row, a multiple of the format's block
    size_t row_bytes;   // from one row of weights to the next
    int64_t groups;
    const hearth_matmul_group *group;
    const float *const *x;  // a pointer to k values for each column, the first group's first
    float *const *y;        // a pointer to rows values for each column
    void *work;             // hearth_matmul_work(k, columns, groups) bytes, aligned to 64
};

// Whether such weights can be multiplied.
bool hearth_matmul_takes(int type, int64_t k);

// Bytes of working memory; columns are those of all groups.
size_t hearth_matmul_work(int64_t k, int64_t columns, int64_t groups);

void hearth_matmul(const hearth_matmul_args *args);
}
