// How the work of matmul.h is divided: threads take rows of the matrices, for all columns of their
// sets, which a Kernel has prepared before.
//
// A Kernel computes ROWS rows of a matrix by up to NC columns at a time. It has prepared columns in
// tiles of NR, of tile_bytes() each, and a Scratch for each thread.
#pragma once

#include <omp.h>

#include <algorithm>
#include <vector>

#include "matmul.h"
#include "types.h"

namespace hearth {

// Up to so many values of x are prepared by each thread for itself: that takes less time than to
// wait for others.
constexpr int64_t MAX_REPLICATED_VALUES = 4096;

// Up to NC columns of a set, and the matrix that they are multiplied with.
struct ColumnBlock {
    const hearth_matmul_matrix &matrix;
    void *tiles;  // of all columns of the set
    size_t tile_bytes;
    int64_t k, first;
    int columns;
};

// Whether each thread prepares all columns for itself.
inline bool replicated(int64_t k, int64_t columns) { return k * columns <= MAX_REPLICATED_VALUES; }

template <class Kernel>
size_t bytes_of_tiles(int64_t k, int64_t columns, int64_t column_sets) {
    return Kernel::tile_bytes(k) * (columns / Kernel::NR + column_sets);
}

// The tiles of every column set, one behind the other from `tiles` on, and where each set's begin.
// replicate: this thread prepares all of them; else the threads of the team share the work.
template <class Kernel>
void prepare_columns(const hearth_matmul_args &a, bool replicate, char *tiles, void **set_tiles) {
    const size_t tile_bytes = Kernel::tile_bytes(a.k);
    for (int64_t s = 0; s < a.column_sets; s++) {
        const hearth_matmul_columns &set = a.column_set[s];
        const auto prepare = [&](int64_t c) {
            Kernel::prepare(a.x[set.first + c], a.k, tiles + c / Kernel::NR * tile_bytes,
                            (int)(c % Kernel::NR));
        };
        set_tiles[s] = tiles;
        if (replicate) {
            for (int64_t c = 0; c < set.count; c++) prepare(c);
        } else {
#pragma omp for schedule(static) nowait
            for (int64_t c = 0; c < set.count; c++) prepare(c);
        }
        tiles += ceil_div(set.count, Kernel::NR) * tile_bytes;
    }
    if (!replicate) {
#pragma omp barrier
    }
}

template <class Kernel>
void matmul(const hearth_matmul_args &a) {
    int64_t columns = 0;
    for (int64_t s = 0; s < a.column_sets; s++) columns += a.column_set[s].count;
    const bool replicate = replicated(a.k, columns);
#pragma omp parallel num_threads(a.threads)
    {
        typename Kernel::Scratch scratch;
        std::vector<void *> set_tiles(a.column_sets);
        char *tiles = (char *)a.workspace;
        if (replicate)
            tiles += omp_get_thread_num() * bytes_of_tiles<Kernel>(a.k, columns, a.column_sets);
        prepare_columns<Kernel>(a, replicate, tiles, set_tiles.data());
        for (int64_t m = 0; m < a.matrices; m++) {
            const hearth_matmul_matrix &matrix = a.matrix[m];
            const int64_t tasks = ceil_div(matrix.rows, Kernel::ROWS);
            const int64_t count = a.column_set[matrix.column_set].count;
            const int chunk = (int)std::clamp<int64_t>(tasks / (a.threads * 4), 1, 16);
#pragma omp for schedule(dynamic, chunk) nowait
            for (int64_t task = 0; task < tasks; task++)
                for (int64_t first = 0; first < count; first += Kernel::NC) {
                    const int block_columns = (int)std::min<int64_t>(Kernel::NC, count - first);
                    const ColumnBlock block = {matrix,
                                               set_tiles[matrix.column_set],
                                               Kernel::tile_bytes(a.k),
                                               a.k,
                                               first,
                                               block_columns};
                    Kernel::multiply_rows(block, task * Kernel::ROWS, scratch);
                }
        }
    }
}

}  // namespace hearth
