// Matrix products with weights in GGUF's block formats, for a few columns or many.
//
// The columns are quantized to signed bytes, 32 with one scale, as llama.cpp does, and packed in
// tiles of NR. Weights are taken in panels of LANES rows: the panel's next KC values are unpacked
// to bytes, a register holding four values of every row, and stay in the first-level cache while up
// to NC columns pass over them. The weights are read once, from where they lie in the file. MR, NR,
// KC and NC are those of BLIS.
#include "matmul.h"

#include <algorithm>
#include <cmath>

#include "amx.h"
#include "fine_inputs.h"
#include "float_matmul.h"
#include "formats.h"
#include "matmul_tasks.h"
#include "simd.h"
#include "types.h"

namespace hearth {
namespace {

// Of a register tile: each of its columns is loaded for all its panels. Where x86 multiplies bytes
// in one instruction, it would wait for those loads with one panel; other AVX2 is short of
// registers for two.
constexpr int PANELS = SIGNED_ZERO_POINT != 0 ? 2 : 1;
constexpr int DOT_COLUMNS = PANELS == 2 ? 4 : 8;
constexpr int MR = PANELS * LANES;  // rows
constexpr int KC = 512;             // values of a row that are unpacked at a time
// Fewer are multiplied by dot(): a tile of one column takes more than half as long as one of 16.
constexpr int MIN_TILE_COLUMNS = 64;

// How columns lie, for dot(), for dot() with one column, and for AMX: NR of them together, and in
// 32 values of these the bytes from a column to the next and from four values of one to its next
// four. NC pass over a panel before it is unpacked again.
struct ForDot {
    static constexpr bool TILES = false;
    static constexpr Order ORDER = Order::BY_COLUMN;
    static constexpr int NR = DOT_COLUMNS, COLUMN_BYTES = 4, FOUR_BYTES = 4 * NR, NC = 64 * NR;
};
struct ForOne {
    static constexpr bool TILES = false;
    static constexpr Order ORDER = Order::BY_ROW;
    static constexpr int NR = 1, COLUMN_BYTES = 32, FOUR_BYTES = 4, NC = 1;
};
struct ForTiles {
    static constexpr bool TILES = true;
    static constexpr Order ORDER = Order::BY_COLUMN;
    static constexpr int NR = TILE_COLUMNS, COLUMN_BYTES = 32, FOUR_BYTES = 4, NC = 32 * NR;
};

// NR quantized columns, or those from one of them on. Value 32g + 4i + j of column c lies at
// values[32g * NR + i * FOUR_BYTES + c * COLUMN_BYTES + j]; what belongs to group g of it, at
// [g * NR + c].
struct ColumnTile {
    int8_t *values;
    float *scale;          // of 32 values
    float *scaled_sum;     // scale x the sum of GROUP_SIZE values
    int32_t *initial_dot;  // -ZERO_POINT x the sum of GROUP_SIZE values: dot products begin with it
};

// Where the tiles of columns of k values lie in memory, and how long one is.
template <class L>
struct TileLayout {
    static constexpr int NR = L::NR;
    size_t scale, scaled_sum, initial_dot, tile_bytes;

    explicit TileLayout(int64_t k) {
        scale = NR * k;
        scaled_sum = scale + NR * k / 32 * sizeof(float);
        initial_dot = scaled_sum + NR * k / 16 * sizeof(float);
        tile_bytes = (initial_dot + NR * k / 16 * sizeof(int32_t) + 63) / 64 * 64;
    }
    ColumnTile at(void *tile, int column) const {
        char *p = (char *)tile;
        return {(int8_t *)p + column * L::COLUMN_BYTES, (float *)(p + scale) + column,
                (float *)(p + scaled_sum) + column, (int32_t *)(p + initial_dot) + column};
    }
};

// Quantizes x [k] into the first column of a tile.
template <class F, class L>
void quantize_column(const float *x, int64_t k, const ColumnTile &tile) {
    constexpr int NR = L::NR;
    for (int64_t g = 0; g < k / 32; g++, x += 32) {
        int32_t fours[8];
        uint32_t sums[2];  // of a NaN's bytes they wrap around; its scale says that it is one
        const float scale = quantize_32(x, fours, sums);
        for (int i = 0; i < 8; i++)
            std::memcpy(tile.values + g * 32 * NR + i * L::FOUR_BYTES, &fours[i], 4);
        tile.scale[g * NR] = scale;
        if (F::GROUP_SIZE == 32) sums[0] += sums[1];
        constexpr int GROUPS = 32 / F::GROUP_SIZE;
        for (int group = 0; group < GROUPS; group++) {
            const int64_t i = (g * GROUPS + group) * NR;
            tile.initial_dot[i] = (int32_t)(-(uint32_t)F::ZERO_POINT * sums[group]);
            if (F::HAS_MIN) tile.scaled_sum[i] = scale * (float)(int32_t)sums[group];
        }
    }
}

// KC unpacked values of LANES rows.
struct Panel {
    alignas(64) uint8_t bytes[KC * LANES];
    alignas(64) float scale[KC / 16 * LANES];
    alignas(64) float min[KC / 16 * LANES];
};

// Fetches the same block of the panel that comes `panels` later; its rows lie there in one piece.
// The processor's own prefetching does not follow LANES rows at once.
template <class F>
void prefetch_block(const uint8_t *w, size_t row_bytes, int64_t block, int panels) {
    const uint8_t *next = w + LANES * (panels * row_bytes + block * F::BLOCK_BYTES);
    for (int i = 0; i < LANES * F::BLOCK_BYTES; i += 64) prefetch(next + i);
}

// Values from first_k to first_k + count of the rows at w; beyond valid_rows the last one again.
template <class F, Order ORDER>
void unpack(const uint8_t *w, size_t row_bytes, int valid_rows, int64_t first_k, int count,
            int panels, Panel &panel) {
    constexpr int GROUPS = F::BLOCK_SIZE / F::GROUP_SIZE;
    const int64_t first_block = first_k / F::BLOCK_SIZE;
    const uint8_t *rows[LANES];
    for (int r = 0; r < LANES; r++)
        rows[r] = w + std::min(r, valid_rows - 1) * row_bytes + first_block * F::BLOCK_BYTES;
    for (int b = 0; b < count / F::BLOCK_SIZE; b++) {
        prefetch_block<F>(w, row_bytes, first_block + b, panels);
        F::scales(rows, panel.scale + b * GROUPS * LANES, panel.min + b * GROUPS * LANES);
        F::template values<ORDER>(rows, panel.bytes + b * F::BLOCK_SIZE * LANES);
        for (int r = 0; r < LANES; r++) rows[r] += F::BLOCK_BYTES;
    }
}

// The sums of a register tile's rows, column by column: where they wait between passes over k, and
// where they go.
struct Sums {
    float (*waiting)[PANELS][LANES];
    float *const *y;  // of each column; null: they wait
    int64_t row;      // the first, in y

    float *at(int c, int p) const { return y != nullptr ? y[c] + row + p * LANES : waiting[c][p]; }
};

// acc[c][p] += a group of values of panel p's rows, from this byte on, times those of column c.
template <class F, class L, int N, int P>
inline void add_dots(const Panel *panels, int byte, const int8_t *x, vec_int (&acc)[N][P]) {
    if constexpr (L::ORDER == Order::BY_ROW) {
        static_assert(N == 1 && P == 1);
        vec_int sums[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
        for (int j = 0; j < F::GROUP_SIZE; j += 16) {
            const vec_int column = broadcast_16_bytes(x + j);
            const uint8_t *w = panels->bytes + byte + j * LANES;
            for (int i = 0; i < 4; i++)
                sums[i] = dot<F::SIGNED>(sums[i], load_int(w + i * 4 * LANES), column);
        }
        acc[0][0] = add_i32(acc[0][0], reduce_add_quarters(sums));
        return;
    }
#if defined(HEARTH_I8MM)
    if constexpr (N > 1) return dot_words<F::GROUP_SIZE / 4, L::NR>(panels->bytes + byte, x, acc);
#endif
    for (int j = 0; j < F::GROUP_SIZE; j += 4) {
        vec_int w[P];
        for (int p = 0; p < P; p++) w[p] = load_int(panels[p].bytes + byte + j * LANES);
        for (int c = 0; c < N; c++) {
            const vec_int column =
                broadcast(read<int32_t>(x + j / 4 * L::FOUR_BYTES + c * L::COLUMN_BYTES));
            for (int p = 0; p < P; p++) acc[c][p] = dot<F::SIGNED>(acc[c][p], w[p], column);
        }
    }
}

// The rows of panel p times column c of the tile, for N columns and P panels: adds what the values
// from first_k to first_k + count come to.
template <class F, class L, int N, int P>
void micro_kernel(const Panel *panels, const ColumnTile &tile, int64_t first_k, int count,
                  const Sums &sums) {
    constexpr int NR = L::NR;
    vec_f32 total[N][P];
    for (int c = 0; c < N; c++)
        for (int p = 0; p < P; p++)
            total[c][p] = first_k == 0 ? zero_f32() : load(sums.waiting[c][p]);
    const int64_t first_group = first_k / F::GROUP_SIZE * NR;
    const int8_t *x = tile.values + first_k * NR;
    const float *x_scale = tile.scale + first_k / 32 * NR, *x_sum = tile.scaled_sum + first_group;
    const int32_t *initial_dot = tile.initial_dot + first_group;
    int bytes = 0, scale = 0;
    for (int g = 0; g < count / 32; g++) {
        for (int group = 0; group < 32 / F::GROUP_SIZE; group++) {
            vec_int acc[N][P];
            for (int c = 0; c < N; c++)
                for (int p = 0; p < P; p++) acc[c][p] = broadcast(initial_dot[c]);
            add_dots<F, L>(panels, bytes, x + group * (F::GROUP_SIZE / 4) * L::FOUR_BYTES, acc);
            bytes += F::GROUP_SIZE * LANES;
            for (int p = 0; p < P; p++) {
                const vec_f32 s = load(panels[p].scale + scale);
                for (int c = 0; c < N; c++)
                    total[c][p] =
                        fma(cvt_f32(acc[c][p]), mul(s, broadcast(x_scale[c])), total[c][p]);
                if (!F::HAS_MIN) continue;
                const vec_f32 min = load(panels[p].min + scale);
                for (int c = 0; c < N; c++)
                    total[c][p] = fnma(min, broadcast(x_sum[c]), total[c][p]);
            }
            scale += LANES;
            initial_dot += NR;
            x_sum += NR;
        }
        x += 32 * NR;
        x_scale += NR;
    }
    for (int c = 0; c < N; c++)
        for (int p = 0; p < P; p++) store(sums.at(c, p), total[c][p]);
}

// The same with AMX, for N columns and panel p, whose bytes are signed: the same bits. The loops
// over columns are unrolled for GCC to keep the sums in registers.
template <bool HAS_MIN, int N>
__attribute__((noinline)) void tile_kernel(const Panel &panel, int p, const ColumnTile &tile,
                                           int64_t first_k, int count, const Sums &sums,
                                           TileDots &dots) {
    constexpr int NR = TILE_COLUMNS;
    vec_f32 total[N];
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) total[c] = first_k == 0 ? zero_f32() : load(sums.waiting[c][p]);
    const int8_t *x = tile.values + first_k * NR;
    const float *x_scale = tile.scale + first_k / 32 * NR;
    const float *x_sum = tile.scaled_sum + first_k / 32 * NR;
    const float *scale = panel.scale, *min = panel.min;
    const uint8_t *end = panel.bytes + count * LANES;
    for (const uint8_t *w = panel.bytes; w != end; w += 32 * LANES) {
        multiply_tile(x, w, dots);
        const vec_f32 s = load(scale);
#pragma GCC unroll 16
        for (int c = 0; c < N; c++)
            total[c] = fma(cvt_f32(load_int(dots[c])), mul(s, broadcast(x_scale[c])), total[c]);
        if (HAS_MIN) {
            const vec_f32 m = load(min);
#pragma GCC unroll 16
            for (int c = 0; c < N; c++) total[c] = fnma(m, broadcast(x_sum[c]), total[c]);
            min += LANES;
            x_sum += NR;
        }
        scale += LANES;
        x += 32 * NR;
        x_scale += NR;
    }
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) store(sums.at(c, p), total[c]);
}

template <class L>
struct ThreadScratch {
    Panel panels[PANELS];
    alignas(64) float sums[L::NC][PANELS][LANES];
    alignas(64) TileDots dots;
    TileRegisters tiles;
};

// y of valid_rows rows from `row` on, of P panels at most, for all columns of the block.
template <class F, class L, int P>
void multiply_panels(const ColumnBlock &block, int64_t row, int valid_rows,
                     ThreadScratch<L> &scratch) {
    const hearth_matmul_matrix &matrix = block.matrix;
    const uint8_t *w = (const uint8_t *)matrix.w + row * matrix.row_bytes;
    const TileLayout<L> layout(block.k);
    float *const *y = matrix.y + block.first;
    const bool whole = valid_rows == P * LANES;
    const bool tiles = L::TILES && block.columns >= MIN_TILE_COLUMNS;
    if (tiles) scratch.tiles.configure();
    for (int64_t first_k = 0; first_k < block.k; first_k += KC) {
        const int count = (int)std::min<int64_t>(KC, block.k - first_k);
        const bool last = first_k + count == block.k;
        for (int p = 0; p < P; p++) {
            unpack<F, L::ORDER>(w + p * LANES * matrix.row_bytes, matrix.row_bytes,
                                std::min(LANES, valid_rows - p * LANES), first_k, count, P,
                                scratch.panels[p]);
            if (tiles && F::ZERO_POINT != 0)
                subtract_zero_point(scratch.panels[p].bytes, count * LANES, F::ZERO_POINT);
        }
        for (int c = 0; c < block.columns; c += tiles ? L::NR : DOT_COLUMNS) {
            const ColumnTile tile = layout.at(
                (char *)block.tiles + (block.first + c) / L::NR * block.tile_bytes, c % L::NR);
            const Sums sums = {scratch.sums + c, last && whole ? y + c : nullptr, row};
            if (tiles) {
                if constexpr (L::TILES)
                    with_count<L::NR>(block.columns - c, [&](auto columns) {
                        for (int p = 0; p < P; p++)
                            tile_kernel<F::HAS_MIN, decltype(columns)::value>(
                                scratch.panels[p], p, tile, first_k, count, sums, scratch.dots);
                    });
                continue;
            }
            with_count<std::min(L::NR, DOT_COLUMNS)>(block.columns - c, [&](auto columns) {
                micro_kernel<F, L, decltype(columns)::value, P>(scratch.panels, tile, first_k,
                                                                count, sums);
            });
        }
    }
    for (int c = 0; !whole && c < block.columns; c++)
        std::memcpy(y[c] + row, scratch.sums[c], valid_rows * sizeof(float));
}

// Rows row to row + MR - 1 of y. With few columns one panel after the other, which the memory
// likes.
template <class F, class L>
void multiply_rows(const ColumnBlock &block, int64_t row, ThreadScratch<L> &scratch) {
    const int valid_rows = (int)std::min<int64_t>(MR, block.matrix.rows - row);
    if constexpr (L::NR > 1)
        if (block.columns > DOT_COLUMNS && valid_rows > MR - LANES)
            return multiply_panels<F, L, PANELS>(block, row, valid_rows, scratch);
    for (int r = 0; r < valid_rows; r += LANES)
        multiply_panels<F, L, 1>(block, row + r, std::min(LANES, valid_rows - r), scratch);
}

// See matmul_tasks.h.
template <class F, class L>
struct BlockKernel {
    static constexpr int ROWS = MR, NR = L::NR, NC = L::NC;
    using Scratch = ThreadScratch<L>;
    static size_t tile_bytes(int64_t k) { return TileLayout<L>(k).tile_bytes; }
    static void prepare(const float *x, int64_t k, void *tile, int column) {
        quantize_column<F, L>(x, k, TileLayout<L>(k).at(tile, column));
    }
    static void multiply_rows(const ColumnBlock &block, int64_t row, Scratch &scratch) {
        hearth::multiply_rows<F, L>(block, row, scratch);
    }
};

// visit(Kernel{}) for the kernel of a type, rows of k values and so many columns in so many sets.
// False: there is none. Groups of 16 values would take AMX as long as those of 32, which is no gain
// over dot().
template <class Visit>
bool with_kernel(int type, int64_t k, int64_t columns, int64_t column_sets, Visit visit) {
    if (k <= 0) return false;
    if (type == TYPE_F16) return visit(FloatKernel<F32Dot<F16Row>>{}), true;
    if (type == TYPE_BF16) return visit(FloatKernel<BF16Dot>{}), true;
    bool whole = false;
    with_format(type, BlockFormats{}, [&](auto format) {
        using F = decltype(format);
        whole = k % F::BLOCK_SIZE == 0;
        if (!whole) return;
        if constexpr (HAS_TILES && F::GROUP_SIZE == TILE_VALUES)
            if (columns >= MIN_TILE_COLUMNS && tiles_permitted())
                return visit(BlockKernel<F, ForTiles>{});
        if (columns <= column_sets) return visit(BlockKernel<F, ForOne>{});
        visit(BlockKernel<F, ForDot>{});
    });
    return whole;
}

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_matmul_supports(int type, int64_t k) {
    return with_kernel(type, k, 1, 1, [](auto) {});
}

extern "C" size_t hearth_matmul_workspace_bytes(int type, int64_t k, int64_t columns,
                                                int64_t column_sets, int threads) {
    size_t bytes = 0;
    with_kernel(type, k, columns, column_sets, [&](auto kernel) {
        bytes = bytes_of_tiles<decltype(kernel)>(k, columns, column_sets);
    });
    return bytes * (replicated(k, columns) ? threads : 1);
}

extern "C" void hearth_matmul(const hearth_matmul_args *args) {
    int64_t columns = 0;
    for (int64_t s = 0; s < args->column_sets; s++) columns += args->column_set[s].count;
    with_kernel(args->type, args->k, columns, args->column_sets,
                [&](auto kernel) { matmul<decltype(kernel)>(*args); });
}

extern "C" void hearth_matmul_fine(const hearth_matmul_args *args) {
    static thread_local FineInputs inputs;
    inputs.multiply(*args);
}
