// Matrix products with weights in F16 and BF16, as they lie: part of matmul.cpp.
//
// Each sum has one register, whatever is computed with it, in which every LANES-th product is
// added, or pair of products where the processor multiplies BF16; so its bits are the same alone
// and with others.
#pragma once

#include <algorithm>

#include "dot.h"
#include "matmul_tasks.h"

namespace hearth {

template <class Dot>
struct FloatKernel {
    static constexpr int ROWS = 32;  // of a task: they stay in the second-level cache
    static constexpr int NR = 1;     // columns of a tile in memory
    static constexpr int NC = 1 << 20;
    struct Scratch {};

    static size_t tile_bytes(int64_t k) { return (k * Dot::INPUT_BYTES + 63) / 64 * 64; }

    static void prepare(const float *x, int64_t k, void *tile, int) {
        if (Dot::INPUT_BYTES == 4)
            std::memcpy(tile, x, k * sizeof *x);
        else
            store_bf16((uint16_t *)tile, x, k);
    }

    static void multiply_rows(const ColumnBlock &block, int64_t first, Scratch &) {
        const hearth_matmul_matrix &matrix = block.matrix;
        const int64_t end = std::min(first + ROWS, matrix.rows);
        const int64_t groups = ceil_div(block.columns, Dot::MAX_COLUMNS);
        const int64_t columns = ceil_div(block.columns, groups);
        for (int64_t c = 0; c < block.columns; c += columns)
            with_count<Dot::MAX_COLUMNS>(std::min(columns, block.columns - c), [&](auto count) {
                constexpr int COUNT = decltype(count)::value;
                const char *x = (const char *)block.tiles + (block.first + c) * block.tile_bytes;
                float *const *y = matrix.y + block.first + c;
                for (int64_t row = first; row < end; row += DOT_ROWS) {
                    const char *rows[DOT_ROWS];
                    for (int r = 0; r < DOT_ROWS; r++)
                        rows[r] =
                            (const char *)matrix.w + std::min(row + r, end - 1) * matrix.row_bytes;
                    float sums[COUNT][DOT_ROWS];
                    dot_tile<Dot, COUNT, COUNT == 1 ? 1 : DOT_ROWS>(
                        rows, c == 0 ? DOT_ROWS * matrix.row_bytes : 0, x, block.tile_bytes,
                        block.k, sums);
                    const int valid = (int)std::min<int64_t>(DOT_ROWS, end - row);
                    for (int i = 0; i < COUNT; i++)
                        std::memcpy(y[i] + row, sums[i], valid * sizeof(float));
                }
            });
    }
};

}  // namespace hearth
