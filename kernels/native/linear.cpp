// See linear.h. Weights and inputs in bfloat16 are multiplied in pairs where the processor does
// that; all else is widened to float32 on the way.
//
// Few columns are multiplied with the rows as they lie. For more, weights and columns are packed:
// MR rows and NR columns in a register tile, KC weights of a row at a time, NC columns for each
// packing (as BLIS names them).
#include "linear.h"

#include <algorithm>
#include <new>
#include <vector>

#include "dot.h"

namespace hearth {
namespace {

constexpr int MAX_DIRECT_COLUMNS = 32;  // up to which rows are multiplied as they lie
constexpr int MIN_ROUNDED_COLUMNS = 7;  // from which rounding weights costs less than it saves
constexpr int64_t DIRECT_BLOCK_BYTES = 24 << 10;  // of columns: they stay in the first-level cache
constexpr int64_t MIN_DIRECT_K = 512;             // weights of a row in a block of columns
constexpr int64_t MIN_ROW_BY_ROW_K = 1024;        // see dot_row_by_row()

constexpr int MR = 2 * LANES, NR = LANES == 16 ? 12 : 4;
constexpr int64_t KC = 1024, NC = 504;

// y of one matrix, whose rows stand from `offset` on.
struct Output {
    const hearth_linear_args &args;
    int64_t offset;

    void write(int64_t column, int64_t row, const float *values, int64_t count) const {
        const int64_t i = column * args.y_stride + offset + row;
        if (args.y_type == TYPE_F32)
            std::memcpy((float *)args.y + i, values, (size_t)count * sizeof(float));
        else
            store_bf16((uint16_t *)args.y + i, values, count);
    }
};

// Where weight i of a row lies behind the row's begin.
int64_t byte_offset(int type, int64_t i) {
    switch (type) {
    case TYPE_Q8_0: return i / Q8_0Row::BLOCK_SIZE * Q8_0Row::BLOCK_BYTES;
    case TYPE_I4: return i / I4Row::BLOCK_SIZE * I4Row::BLOCK_BYTES;
    case TYPE_I8:
    case TYPE_F8_E4M3: return i;
    default: return i * (type == TYPE_F32 ? 4 : 2);
    }
}

void row_to_bf16(int type, const char *row, int64_t k, uint16_t *out) {
    with_row(type, [&](auto reader) {
        int64_t i = 0;
        for (; i + LANES <= k; i += LANES) store_bf16(out + i, reader.lanes(row, i));
        for (; i < k; i++) out[i] = f32_to_bf16(reader.scalar(row, i));
    });
}

// k numbers of a row as float32 or bfloat16, which have `width` bytes.
void convert_row(int type, const char *row, int64_t k, int width, char *out) {
    if (width == 2)
        row_to_bf16(type, row, k, (uint16_t *)out);
    else
        row_to_f32(type, row, k, (float *)out);
}

// out [columns][DOT_ROWS]: see dot_tile(); columns: Dot::MAX_COLUMNS at most. A switch and not
// with_count(), of which GCC makes one function that runs short of registers.
template <class Dot>
void dot_columns(int columns, const char *const *rows, int64_t prefetch_bytes, const char *x,
                 int64_t x_bytes, int64_t k, float (*out)[DOT_ROWS]) {
    constexpr int MAX = Dot::MAX_COLUMNS;
    const bool row_by_row = k >= MIN_ROW_BY_ROW_K;
    switch (columns) {
    case 1:
        if (row_by_row) return dot_row_by_row<Dot, 1>(rows, x, x_bytes, k, out);
        return dot_tile<Dot, 1>(rows, prefetch_bytes, x, x_bytes, k, out);
    case 2:
        if (row_by_row) return dot_row_by_row<Dot, 2>(rows, x, x_bytes, k, out);
        return dot_tile<Dot, 2>(rows, prefetch_bytes, x, x_bytes, k, out);
    case 3:
        if (row_by_row) return dot_row_by_row<Dot, std::min(3, MAX)>(rows, x, x_bytes, k, out);
        return dot_tile<Dot, std::min(3, MAX)>(rows, prefetch_bytes, x, x_bytes, k, out);
    case 4: return dot_tile<Dot, std::min(4, MAX)>(rows, prefetch_bytes, x, x_bytes, k, out);
    case 5: return dot_tile<Dot, std::min(5, MAX)>(rows, prefetch_bytes, x, x_bytes, k, out);
    default: return dot_tile<Dot, MAX>(rows, prefetch_bytes, x, x_bytes, k, out);
    }
}

// Rows first to last of m, MR at most, by few columns x, x_bytes apart. A block of the columns
// passes over all the rows, so that it stays in the first-level cache.
template <class Dot>
void multiply_direct(const hearth_matrix &m, int64_t first, int64_t last, const char *x,
                     int64_t x_bytes, const Output &to) {
    const hearth_linear_args &a = to.args;
    const bool round = Dot::INPUT_BYTES == 2 && m.type != TYPE_BF16;
    const int64_t columns = ceil_div(a.n, ceil_div(a.n, Dot::MAX_COLUMNS));
    const int64_t block_k =
        std::max<int64_t>(MIN_DIRECT_K, DIRECT_BLOCK_BYTES / (a.n * Dot::INPUT_BYTES) / 64 * 64);
    static thread_local uint16_t rounded[DOT_ROWS][DIRECT_BLOCK_BYTES / 2];
    float out[6][DOT_ROWS], sums[MAX_DIRECT_COLUMNS][MR] = {};
    for (int64_t first_k = 0; first_k < a.k; first_k += block_k) {
        const int64_t k = std::min(block_k, a.k - first_k);
        const char *weights = (const char *)m.data + byte_offset(m.type, first_k);
        for (int64_t row = first; row < last; row += DOT_ROWS) {
            const char *rows[DOT_ROWS];
            for (int r = 0; r < DOT_ROWS; r++)
                rows[r] = weights + std::min(row + r, last - 1) * m.stride;
            for (int r = 0; round && r < DOT_ROWS; r++) {
                row_to_bf16(m.type, rows[r], k, rounded[r]);
                rows[r] = (const char *)rounded[r];
            }
            for (int64_t c = 0; c < a.n; c += columns) {
                const int count = (int)std::min(columns, a.n - c);
                dot_columns<Dot>(count, rows, c ? 0 : DOT_ROWS * m.stride,
                                 x + c * x_bytes + first_k * Dot::INPUT_BYTES, x_bytes, k, out);
                for (int i = 0; i < count; i++)
                    for (int r = 0; r < DOT_ROWS; r++) sums[c + i][row - first + r] += out[i][r];
            }
        }
    }
    for (int64_t c = 0; c < a.n; c++) to.write(c, first, sums[c], last - first);
}

// KC weights of MR rows, packed so that four bytes of all rows lie side by side.
struct Panel {
    alignas(64) int32_t packed[KC * MR];
    char converted[LANES][KC * sizeof(float)];
};

// `count` weights of a row as numbers of `width` bytes: where they lie if they are that, else in
// copy.
const char *converted_row(const hearth_matrix &m, int64_t row, int64_t first_k, int64_t count,
                          int width, char *copy) {
    const char *at = (const char *)m.data + row * m.stride + byte_offset(m.type, first_k);
    if (m.type == (width == 2 ? TYPE_BF16 : TYPE_F32)) return at;
    convert_row(m.type, at, count, width, copy);
    return copy;
}

void pack_panel(Panel &panel, const hearth_matrix &m, int64_t row, int64_t first_k, int64_t count,
                int width) {
    const int64_t bytes = count * width, whole_steps = bytes / 32, prefetch_bytes = MR * m.stride;
    const bool direct = m.type == (width == 2 ? TYPE_BF16 : TYPE_F32);
    for (int side = 0; side < 2; side++) {
        const char *rows[LANES];
        for (int r = 0; r < LANES; r++)
            rows[r] = converted_row(m, std::min(row + side * LANES + r, m.rows - 1), first_k, count,
                                    width, panel.converted[r]);
        int32_t *out = panel.packed + side * LANES;
        for (int64_t s = 0; s * 32 < bytes; s++) {
            bytes_32 taken[LANES];
            char rest[32] = {};
            for (int r = 0; r < LANES; r++) {
                const char *at = rows[r] + 32 * s;
                if (s % 2 == 0 && direct) prefetch(at + prefetch_bytes);
                if (s == whole_steps) std::memcpy(rest, at, (size_t)(bytes - 32 * s));
                taken[r] = load_32_bytes(s == whole_steps ? rest : at);
            }
            vec_int transposed[8];
            transpose(taken, transposed);
            for (int j = 0; j < 8; j++, out += MR) store_int(out, transposed[j]);
        }
    }
}

// sums[column][row] += a panel by N columns, both as `words` times 4 bytes.
template <class Dot, int N>
void micro_kernel(const int32_t *panel, const int32_t *x, int64_t words, float (*sums)[MR]) {
    vec_f32 acc[N][2];
    for (int c = 0; c < N; c++)
        for (int side = 0; side < 2; side++) acc[c][side] = load(sums[c] + side * LANES);
    for (int64_t i = 0; i < words; i++, panel += MR, x += NR) {
        const vec_int low = load_int(panel), high = load_int(panel + LANES);
        for (int c = 0; c < N; c++) {
            const vec_int column = broadcast(x[c]);
            acc[c][0] = Dot::accumulate(acc[c][0], low, column);
            acc[c][1] = Dot::accumulate(acc[c][1], high, column);
        }
    }
    for (int c = 0; c < N; c++)
        for (int side = 0; side < 2; side++) store(sums[c] + side * LANES, acc[c][side]);
}

// 4-byte words of k packed numbers of `width` bytes, filled up to 32 bytes.
int64_t packed_words(int64_t k, int width) { return ceil_div(k * width, 32) * 8; }

// MR rows from `row` on by all columns, which x holds packed; see Columns.
template <class Dot>
void multiply_packed(const hearth_matrix &m, int64_t row, const int32_t *x, const Output &to) {
    static thread_local Panel panel;
    static thread_local float sums[NC][MR];
    const hearth_linear_args &a = to.args;
    const int64_t tile_words = packed_words(a.k, Dot::INPUT_BYTES) * NR;
    for (int64_t first = 0; first < a.n; first += NC) {
        const int64_t columns = std::min(NC, a.n - first);
        std::memset(sums, 0, (size_t)(ceil_div(columns, NR) * NR) * sizeof *sums);
        for (int64_t first_k = 0; first_k < a.k; first_k += KC) {
            const int64_t count = std::min(KC, a.k - first_k);
            const int64_t words = packed_words(count, Dot::INPUT_BYTES);
            pack_panel(panel, m, row, first_k, count, Dot::INPUT_BYTES);
            for (int64_t c = 0; c < columns; c += NR) {
                const int32_t *tile =
                    x + (first + c) / NR * tile_words + first_k * Dot::INPUT_BYTES / 4 * NR;
                const int64_t left = columns - c;
                if (left <= 4)
                    micro_kernel<Dot, 4>(panel.packed, tile, words, sums + c);
                else if (left <= 8 && NR > 8)
                    micro_kernel<Dot, std::min(8, NR)>(panel.packed, tile, words, sums + c);
                else
                    micro_kernel<Dot, NR>(panel.packed, tile, words, sums + c);
            }
        }
        for (int64_t c = 0; c < columns; c++)
            to.write(first + c, row, sums[c], std::min<int64_t>(MR, m.rows - row));
    }
}

// Whether x is multiplied with m in bfloat16.
bool uses_bf16_dot(const hearth_linear_args &a, const hearth_matrix &m) {
    if (!HAS_BF16_DOT) return false;
    if (m.type == TYPE_BF16) return a.x_type == TYPE_BF16 || a.allow_bf16;
    return a.allow_bf16 && a.n >= MIN_ROUNDED_COLUMNS;
}

int input_width(const hearth_linear_args &a) { return a.x_type == TYPE_BF16 ? 2 : 4; }

// The columns of a product as numbers of one width, and where there are many, packed: four bytes of
// each column of a tile of NR side by side. Keeps its memory.
struct Columns {
    std::vector<char> rows, packed;

    // Bytes between columns, as multiply_direct() takes them.
    static int64_t stride(const hearth_linear_args &a, int width) {
        return width == input_width(a) ? a.x_stride * width : packed_words(a.k, width) * 4;
    }

    const char *prepare(const hearth_linear_args &a, int width) {
        if (a.n > MAX_DIRECT_COLUMNS) return pack(a, width);
        if (width == input_width(a)) return (const char *)a.x;
        const int64_t bytes = stride(a, width);
        rows.resize((size_t)(bytes * a.n));
        for (int64_t c = 0; c < a.n; c++) convert(a, c, width, rows.data() + c * bytes);
        return rows.data();
    }

    // Column c in numbers of this width.
    static void convert(const hearth_linear_args &a, int64_t c, int width, char *to) {
        const int own = input_width(a);
        const char *from = (const char *)a.x + c * a.x_stride * own;
        if (width == own)
            std::memcpy(to, from, (size_t)(a.k * width));
        else
            convert_row(a.x_type, from, a.k, width, to);
    }

    const char *pack(const hearth_linear_args &a, int width) {
        const int64_t words = packed_words(a.k, width), tiles = ceil_div(a.n, NR);
        packed.resize((size_t)(tiles * NR * words * 4));
        int32_t *const to = (int32_t *)packed.data();
#pragma omp parallel for schedule(static) num_threads(a.threads) if (a.threads > 1)
        for (int64_t t = 0; t < tiles; t++) pack_tile(a, t, width, words, to + t * NR * words);
        return packed.data();
    }

    static void pack_tile(const hearth_linear_args &a, int64_t t, int width, int64_t words,
                          int32_t *to) {
        static thread_local std::vector<int32_t> columns;
        columns.assign((size_t)(NR * words), 0);
        for (int64_t c = t * NR; c < std::min(a.n, (t + 1) * NR); c++)
            convert(a, c, width, (char *)(columns.data() + (c - t * NR) * words));
        for (int64_t i = 0; i < words; i++)
            for (int c = 0; c < NR; c++) *to++ = columns[(size_t)(c * words + i)];
    }
};

// Rows first to last of m by the prepared columns x; bf16: these are bfloat16.
void multiply_rows(const hearth_matrix &m, int64_t first, int64_t last, const char *x, bool bf16,
                   const Output &to) {
    const hearth_linear_args &a = to.args;
    if (a.n > MAX_DIRECT_COLUMNS) {
        const int32_t *packed = (const int32_t *)x;
        if (bf16) return multiply_packed<BF16Dot>(m, first, packed, to);
        return multiply_packed<F32Dot<F32Row>>(m, first, packed, to);
    }
    const int64_t x_bytes = Columns::stride(a, bf16 ? 2 : 4);
    if (bf16) return multiply_direct<BF16Dot>(m, first, last, x, x_bytes, to);
    if (m.type == TYPE_Q8_0 && a.n <= Q8_0Dot::MAX_COLUMNS)
        return multiply_direct<Q8_0Dot>(m, first, last, x, x_bytes, to);
    if (m.type == TYPE_I4 && a.n <= I4Dot::MAX_COLUMNS)
        return multiply_direct<I4Dot>(m, first, last, x, x_bytes, to);
    with_row(m.type, [&](auto reader) {
        multiply_direct<F32Dot<decltype(reader)>>(m, first, last, x, x_bytes, to);
    });
}

}  // namespace

void row_to_f32(int type, const char *row, int64_t k, float *out) {
    with_row(type, [&](auto reader) {
        int64_t i = 0;
        for (; i + LANES <= k; i += LANES) store(out + i, reader.lanes(row, i));
        for (; i < k; i++) out[i] = reader.scalar(row, i);
    });
}

}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_linear(const hearth_linear_args *args) try {
    const hearth_linear_args &a = *args;
    static thread_local Columns columns[2];
    const char *x[2] = {nullptr, nullptr};
    int64_t offset = 0;
    for (int64_t i = 0; i < a.count; i++) {
        const hearth_matrix &m = a.matrices[i];
        const bool bf16 = uses_bf16_dot(a, m);
        if (!x[bf16]) x[bf16] = columns[bf16].prepare(a, bf16 ? 2 : 4);
        const char *prepared = x[bf16];
        const Output to{a, offset};
        const int64_t panels = ceil_div(m.rows, MR);
        const int chunk = (int)std::clamp<int64_t>(panels / (a.threads * 4), 1, 8);
#pragma omp parallel for schedule(dynamic, chunk) \
    num_threads(a.threads) if (a.threads > 1 && panels > 1)
        for (int64_t p = 0; p < panels; p++)
            multiply_rows(m, p * MR, std::min(m.rows, (p + 1) * MR), prepared, bf16, to);
        offset += m.rows;
    }
    return true;
} catch (const std::bad_alloc &) {
    return false;
}
