// What a row of queries looks at: how attention's work is divided, and which cells a block of rows
// sees. A cache mixes the cells of many sequences; the mask tells which belong to a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "attention.h"
#include "lanes.h"

namespace hearth {

constexpr int CELLS = 32;
constexpr int SOON = 20;  // cells before it is taken a cell is fetched
constexpr int ROWS = 16;
constexpr int64_t PART = 4;     // tiles that a thread takes when the scores of a block are divided
constexpr int64_t SEGMENT = 4 * LANES;  // values that it takes then
constexpr uint16_t HIDDEN = 0xfc00;  // -infinity in a mask

// How the work is divided: items are (key head, block of rows).
struct Division {
    int64_t group, rows, lines, blocks, tiles, items, parts, segments;
    bool divided;  // items are divided further
    explicit Division(const hearth_attention_args &a) {
        group = a.heads / a.heads_kv;
        rows = group * a.rows;
        lines = std::min<int64_t>(ROWS, rows);  // of the largest block
        blocks = (rows + ROWS - 1) / ROWS;
        tiles = (a.cells + CELLS - 1) / CELLS;
        items = a.heads_kv * blocks;
        parts = (most_tiles() + PART - 1) / PART;
        segments = (a.v.values + SEGMENT - 1) / SEGMENT;
        divided = a.threads > 1 && items < 2 * a.threads;
    }
    // Of a Selection, and the lines of scores that they have together: it never costs more than all
    // cells for all rows.
    int64_t most_tiles() const { return lines == group ? tiles : tiles * (lines + 2); }
    int64_t most_lines() const { return tiles * (lines + 2); }
};

// The rows of an item.
struct Block {
    int64_t head_kv, row;
    int rows;
    Block(const Division &by, int64_t item) {
        head_kv = item / by.blocks;
        row = item % by.blocks * ROWS;
        rows = (int)std::min<int64_t>(ROWS, by.rows - row);
    }
    int64_t n(const Division &by, int r) const { return (row + r) / by.group; }
    int64_t head(const Division &by, int r) const { return head_kv * by.group + (row + r) % by.group; }
    int rows_of(const Division &by, int64_t n) const {
        return (int)(std::min(row + rows, (n + 1) * by.group) - std::max(row, n * by.group));
    }
};

// The cells that a block's rows look at.
struct Selection {
    struct Tile {
        int row, rows;  // of the block
        int64_t line;   // where its scores begin
    };
    std::vector<Tile> tiles;
    std::vector<int32_t> cells;  // CELLS for each tile, -1 after the last one; SOON more
    std::vector<uint64_t> seen, all, any;  // bits: of each row of the mask; of every row; of some row

    void choose(const hearth_attention_args &a, const Division &by, const Block &block);
    int64_t parts() const { return ((int64_t)tiles.size() + PART - 1) / PART; }

private:
    void add(const uint64_t *bits, int64_t words, int row, int rows);
};

inline const uint16_t *mask_row(const hearth_attention_args &a, int64_t n) {
    return (const uint16_t *)((const char *)a.mask + n * a.mask_bytes);
}

// A bit for each of up to 64 cells from cell on that row n sees.
inline uint64_t seen_cells(const hearth_attention_args &a, int64_t n, int64_t cell) {
    const int64_t count = std::min<int64_t>(64, a.cells - cell);
    const uint64_t present = count < 64 ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0;
    if (a.mask == nullptr) return present;
    if (count == 64) return unlike(mask_row(a, n) + cell, HIDDEN);
    uint16_t last[64] = {};
    std::memcpy(last, mask_row(a, n) + cell, count * sizeof *last);
    return unlike(last, HIDDEN) & present;
}

inline int64_t count_bits(const std::vector<uint64_t> &bits, int64_t from, int64_t words) {
    int64_t count = 0;
    for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(bits[from + w]);
    return count;
}

// Tiles of the cells of these bits for some rows.
inline void Selection::add(const uint64_t *bits, int64_t words, int row, int rows) {
    const size_t begun = cells.size();
    for (int64_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            cells.push_back((int32_t)(w * 64 + __builtin_ctzll(left)));
    while (cells.size() % CELLS != 0) cells.push_back(-1);
    for (size_t t = begun; t < cells.size(); t += CELLS) {
        const int64_t line = tiles.empty() ? 0 : tiles.back().line + tiles.back().rows;
        tiles.push_back({row, rows, line});
    }
}

inline void Selection::choose(const hearth_attention_args &a, const Division &by, const Block &block) {
    const int64_t words = (a.cells + 63) / 64, first = block.n(by, 0), last = block.n(by, block.rows - 1);
    tiles.clear();
    cells.clear();
    seen.resize((last - first + 1) * words);
    all.assign(words, ~(uint64_t)0);
    any.assign(words, 0);
    for (int64_t n = first; n <= last; n++)
        for (int64_t w = 0; w < words; w++) {
            const uint64_t bits = seen[(n - first) * words + w] = seen_cells(a, n, w * 64);
            all[w] &= bits;
            any[w] |= bits;
        }
    // In rows of a tile; to convert its cells costs as much as one and a half
    const auto cost = [](int64_t count, int64_t rows) { return (count + CELLS - 1) / CELLS * (2 * rows + 3); };
    const int64_t common = count_bits(all, 0, words);
    int64_t apart = cost(common, block.rows);
    for (int64_t n = first; n <= last; n++)
        apart += cost(count_bits(seen, (n - first) * words, words) - common, block.rows_of(by, n));
    const bool together = apart >= cost(count_bits(any, 0, words), block.rows);
    add(together ? any.data() : all.data(), words, 0, block.rows);
    int row = 0;
    for (int64_t n = first; n <= last && !together; n++) {
        uint64_t *own = seen.data() + (n - first) * words;
        for (int64_t w = 0; w < words; w++) own[w] &= ~all[w];
        add(own, words, row, block.rows_of(by, n));
        row += block.rows_of(by, n);
    }
    cells.resize(cells.size() + SOON, -1);
}

}  // namespace hearth
