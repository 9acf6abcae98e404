// Matrix products with weights in GGUF's block formats, F16 and BF16: y[c][r] = sum over k of
// w[r][k] x[c][k].
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
    size_t row_bytes;    // from one row of weights to the next
    int64_t column_set;  // index of the columns that it is multiplied with
    float *const *y;     // for each of them a pointer to `rows` values
};

struct hearth_matmul_args {
    int type;               // ggml's number of the weights' format
    int threads;            // at least 1
    int64_t k;              // values of a row, of a block format a multiple of its block size
    const float *const *x;  // for each column a pointer to k values
    int64_t column_sets;
    const hearth_matmul_columns *column_set;
    int64_t matrices;
    const hearth_matmul_matrix *matrix;
    void *workspace;  // hearth_matmul_workspace_bytes(), aligned to 64
};

// Whether rows of k values of this type can be multiplied.
bool hearth_matmul_supports(int type, int64_t k);

// columns: of all column sets.
size_t hearth_matmul_workspace_bytes(int type, int64_t k, int64_t columns, int64_t column_sets,
                                     int threads);

void hearth_matmul(const hearth_matmul_args *args);

// The same with inputs of 16 bits instead of 8, for block formats, in twice the time: see
// fine_inputs.h. The workspace is that of twice as many columns.
void hearth_matmul_fine(const hearth_matmul_args *args);
}
