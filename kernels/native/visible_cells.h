// How attention's work is divided, and which cells a block of query rows sees. A cache mixes the
// cells of many sequences; the mask tells which belong to a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "attention.h"
#include "simd.h"
#include "types.h"

namespace hearth {

constexpr int BLOCK_ROWS = 16;      // query rows that share what is read of a cell
constexpr int TILE_CELLS = 32;      // cells that are computed together
constexpr int PREFETCH_CELLS = 20;  // a cell is fetched so many cells before its turn
// What a thread takes where a block is shared: tiles, when scores are computed; numbers of a
// vector, when values are summed.
constexpr int64_t SPLIT_TILES = 4;
constexpr int64_t SPLIT_DIMS = 4 * LANES;
constexpr uint16_t MASKED = 0xfc00;  // -infinity in float16

// How the work is divided: into tasks, each a key head and a block of query rows. A query row is a
// row and one of the `group` heads that share the key head.
struct Partition {
    int64_t group, query_rows, block_rows, row_blocks, tiles, tasks;
    bool split;  // few tasks: threads share them, in tile_splits and then in dim_splits
    int64_t tile_splits, dim_splits;

    explicit Partition(const hearth_attention_args &a) {
        group = a.heads / a.heads_kv;
        query_rows = group * a.rows;
        block_rows = std::min<int64_t>(BLOCK_ROWS, query_rows);
        row_blocks = ceil_div(query_rows, BLOCK_ROWS);
        tiles = ceil_div(a.cells, TILE_CELLS);
        tasks = a.heads_kv * row_blocks;
        split = a.threads > 1 && tasks < 2 * a.threads;
        tile_splits = ceil_div(max_tiles(), SPLIT_TILES);
        dim_splits = ceil_div(a.v.head_dim, SPLIT_DIMS);
    }
    // Of a block's VisibleCells, and the rows that these have together: never more than all cells
    // cost for all rows.
    int64_t max_tiles() const { return block_rows == group ? tiles : max_score_rows(); }
    int64_t max_score_rows() const { return tiles * (block_rows + 2); }
};

// The query rows of a task.
struct RowBlock {
    int64_t head_kv, first;
    int rows;

    RowBlock(const Partition &by, int64_t task) {
        head_kv = task / by.row_blocks;
        first = task % by.row_blocks * BLOCK_ROWS;
        rows = (int)std::min<int64_t>(BLOCK_ROWS, by.query_rows - first);
    }
    // Row and head of the block's query row r.
    int64_t row(const Partition &by, int r) const { return (first + r) / by.group; }
    int64_t head(const Partition &by, int r) const {
        return head_kv * by.group + (first + r) % by.group;
    }
    // How many of its query rows are of a row.
    int count(const Partition &by, int64_t row) const {
        return (int)(std::min(first + rows, (row + 1) * by.group) -
                     std::max(first, row * by.group));
    }
};

// The cells that a block's rows see, in tiles.
struct VisibleCells {
    struct Tile {
        int row, rows;      // query rows of the block that see its cells
        int64_t score_row;  // where the scores of the first of them stand
    };
    std::vector<Tile> tiles;
    std::vector<int32_t> cells;  // TILE_CELLS of each tile, -1 behind the last; PREFETCH_CELLS more

    void find(const hearth_attention_args &a, const Partition &by, const RowBlock &block);
    int64_t tile_splits() const { return ceil_div((int64_t)tiles.size(), SPLIT_TILES); }

private:
    // A bit for each cell that each row, every row, some row sees
    std::vector<uint64_t> visible, all, any;

    void add_tiles(const uint64_t *bits, int64_t words, int row, int rows);
};

inline const uint16_t *mask_row(const hearth_attention_args &a, int64_t row) {
    return (const uint16_t *)((const char *)a.mask + row * a.mask_row_bytes);
}

// A bit for each of up to 64 cells from `cell` on that a row sees.
inline uint64_t visible_bits(const hearth_attention_args &a, int64_t row, int64_t cell) {
    const int64_t count = std::min<int64_t>(64, a.cells - cell);
    const uint64_t present = count < 64 ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0;
    if (a.mask == nullptr) return present;
    if (count == 64) return cmpneq_mask(mask_row(a, row) + cell, MASKED);
    uint16_t last[64] = {};
    std::memcpy(last, mask_row(a, row) + cell, count * sizeof *last);
    return cmpneq_mask(last, MASKED) & present;
}

inline int64_t popcount(const uint64_t *bits, int64_t words) {
    int64_t count = 0;
    for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(bits[w]);
    return count;
}

// Tiles of the cells of these bits for some query rows.
inline void VisibleCells::add_tiles(const uint64_t *bits, int64_t words, int row, int rows) {
    const size_t first = cells.size();
    for (int64_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            cells.push_back((int32_t)(w * 64 + __builtin_ctzll(left)));
    while (cells.size() % TILE_CELLS != 0) cells.push_back(-1);
    for (size_t t = first; t < cells.size(); t += TILE_CELLS) {
        const int64_t score_row = tiles.empty() ? 0 : tiles.back().score_row + tiles.back().rows;
        tiles.push_back({row, rows, score_row});
    }
}

// Takes the cells that all rows see together and the others for each row apart, or those that some
// row sees together for all, whichever is less work.
inline void VisibleCells::find(const hearth_attention_args &a, const Partition &by,
                               const RowBlock &block) {
    const int64_t words = ceil_div(a.cells, 64);
    const int64_t first = block.row(by, 0), last = block.row(by, block.rows - 1);
    const auto row_bits = [&](int64_t row) { return visible.data() + (row - first) * words; };
    tiles.clear();
    cells.clear();
    visible.resize((last - first + 1) * words);
    all.assign(words, ~(uint64_t)0);
    any.assign(words, 0);
    for (int64_t row = first; row <= last; row++)
        for (int64_t w = 0; w < words; w++) {
            const uint64_t bits = row_bits(row)[w] = visible_bits(a, row, w * 64);
            all[w] &= bits;
            any[w] |= bits;
        }
    // In query rows of a tile; to convert its cells costs as much as one and a half
    const auto cost = [](int64_t count, int64_t rows) {
        return ceil_div(count, TILE_CELLS) * (2 * rows + 3);
    };
    const int64_t common = popcount(all.data(), words);
    int64_t apart = cost(common, block.rows);
    for (int64_t row = first; row <= last; row++)
        apart += cost(popcount(row_bits(row), words) - common, block.count(by, row));
    const bool together = apart >= cost(popcount(any.data(), words), block.rows);
    add_tiles(together ? any.data() : all.data(), words, 0, block.rows);
    int r = 0;
    for (int64_t row = first; row <= last && !together; row++) {
        uint64_t *own = row_bits(row);
        for (int64_t w = 0; w < words; w++) own[w] &= ~all[w];
        add_tiles(own, words, r, block.count(by, row));
        r += block.count(by, row);
    }
    cells.resize(cells.size() + PREFETCH_CELLS, -1);
}

}  // namespace hearth
