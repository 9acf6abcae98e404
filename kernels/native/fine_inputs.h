// Products of matmul.h whose inputs have 16 bits instead of 8, at twice the cost: each column
// becomes two, its values rounded as matmul.h rounds them and what that leaves, and the two
// products are added.
#pragma once

#include <algorithm>
#include <vector>

#include "matmul.h"
#include "simd.h"

namespace hearth {

// Keeps its memory from one product to the next.
class FineInputs {
public:
    // As hearth_matmul(), with the workspace of twice as many columns; of a block format.
    void multiply(hearth_matmul_args args) {
        split(args);
        redirect(args);
        const hearth_matmul_columns *sets = args.column_set;
        args.x = x.data();
        args.column_set = column_sets.data();
        args.matrix = matrices.data();
        hearth_matmul(&args);
        for (const hearth_matmul_matrix &m : matrices) {
            const int64_t count = sets[m.column_set].count;
#pragma omp parallel for schedule(static) num_threads(args.threads) if (args.threads > 1)
            for (int64_t c = 0; c < count; c++) {
                float *const sum = m.y[c];
                const float *const rest = m.y[count + c];
                for (int64_t r = 0; r < m.rows; r++) sum[r] += rest[r];
            }
        }
    }

private:
    static void split_column(const float *from, int64_t k, float *rounded, float *rest) {
        int32_t fours[8];
        uint32_t sums[2];
        const int8_t *bytes = (const int8_t *)fours;
        for (int64_t i = 0; i < k; i += 32) {
            const float scale = quantize_32(from + i, fours, sums);
            for (int j = 0; j < 32; j++) {
                rounded[i + j] = scale * (float)bytes[j];
                rest[i + j] = from[i + j] - rounded[i + j];
            }
        }
    }

    // x and column_sets: of each set first the rounded columns.
    void split(const hearth_matmul_args &args) {
        int64_t columns = 0;
        for (int64_t s = 0; s < args.column_sets; s++) columns += args.column_set[s].count;
        values.resize(2 * columns * args.k);
        x.resize(2 * columns);
        column_sets.clear();
        for (int64_t s = 0; s < args.column_sets; s++) {
            const auto [first, count] = args.column_set[s];
            column_sets.push_back({2 * first, 2 * count});
            for (int64_t c = 0; c < count; c++) {
                const float *rounded = values.data() + 2 * (first + c) * args.k;
                x[2 * first + c] = rounded;
                x[2 * first + count + c] = rounded + args.k;
            }
        }
#pragma omp parallel for schedule(static) num_threads(args.threads) if (args.threads > 1)
        for (int64_t c = 0; c < columns; c++) {
            float *rounded = values.data() + 2 * c * args.k;
            split_column(args.x[c], args.k, rounded, rounded + args.k);
        }
    }

    // matrices: with what the second columns come to in `rests`.
    void redirect(const hearth_matmul_args &args) {
        matrices.assign(args.matrix, args.matrix + args.matrices);
        int64_t outputs = 0, sums = 0;
        for (const hearth_matmul_matrix &m : matrices) {
            outputs += args.column_set[m.column_set].count;
            sums += args.column_set[m.column_set].count * m.rows;
        }
        y.resize(2 * outputs);
        rests.resize(sums);
        float **to = y.data(), *rest = rests.data();
        for (hearth_matmul_matrix &m : matrices) {
            const int64_t count = args.column_set[m.column_set].count;
            std::copy(m.y, m.y + count, to);
            m.y = to;
            to += count;
            for (int64_t c = 0; c < count; c++, rest += m.rows) *to++ = rest;
        }
    }

    std::vector<float> values, rests;
    std::vector<const float *> x;
    std::vector<float *> y;
    std::vector<hearth_matmul_columns> column_sets;
    std::vector<hearth_matmul_matrix> matrices;
};

}  // namespace hearth
