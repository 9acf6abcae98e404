// Intel's AMX: products of tiles of signed bytes, of 16 columns by 16 rows at once. They are exact,
// so that their bits are those of dot().
//
// The instructions are written out: GCC's intrinsics do not say which memory they read, and GCC 12
// drops the stores before them.
#pragma once

#include "simd.h"

#if defined(HEARTH_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hearth {

constexpr int TILE_COLUMNS = 16, TILE_VALUES = 32;  // values: of each column and row
using TileDots = int32_t[TILE_COLUMNS][LANES];

#if defined(HEARTH_AMX)

constexpr bool HAS_TILES = true;

// Whether the system lets this process use tiles. It is asked once, for every thread: their state
// takes 8 KiB wherever it is saved. An old system has no such call, a container may forbid it.
inline bool tiles_permitted() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;  // asm/prctl.h, asm/fpu/types.h
    static const bool permitted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return permitted;
}

// The tile registers of a thread, from configure() on: 0 for dots, 1 for columns, 2 for weights.
class TileRegisters {
public:
    void configure() {
        if (configured) return;
        struct {
            uint8_t palette = 1, first_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {LANES * 4, TILE_VALUES, LANES * 4};
            uint8_t rows[16] = {TILE_COLUMNS, TILE_COLUMNS, TILE_VALUES / 4};
        } const shapes;
        asm volatile("ldtilecfg %0" : : "m"(shapes));
        configured = true;
    }
    TileRegisters() = default;
    TileRegisters(const TileRegisters &) = delete;
    TileRegisters &operator=(const TileRegisters &) = delete;
    ~TileRegisters() {
        if (configured) asm volatile("tilerelease");
    }

private:
    bool configured = false;
};

// dots[c][r] = column c times row r. Columns: TILE_VALUES bytes of one after the other; weights:
// four values of each row in turn.
inline void multiply_tile(const int8_t *columns, const uint8_t *weights, TileDots &dots) {
    const auto &x = *(const int8_t (*)[TILE_COLUMNS * TILE_VALUES]) columns;
    const auto &w = *(const uint8_t (*)[TILE_VALUES * LANES]) weights;
    asm volatile(
        "tileloadd (%[x], %[x_step]), %%tmm1\n\t"
        "tileloadd (%[w], %[step]), %%tmm2\n\t"
        "tilezero %%tmm0\n\t"
        "tdpbssd %%tmm2, %%tmm1, %%tmm0\n\t"
        "tilestored %%tmm0, (%[dots], %[step])"
        : "=m"(dots)
        : [x] "r"(columns), [w] "r"(weights), [dots] "r"(&dots), [x_step] "r"((long)TILE_VALUES),
          [step] "r"(LANES * 4L), "m"(x), "m"(w));
}

// bytes[i] -= zero_point, for `count` bytes.
inline void subtract_zero_point(uint8_t *bytes, int count, int zero_point) {
    const vec_int subtrahend = _mm512_set1_epi8((char)zero_point);
    for (int i = 0; i < count; i += 4 * LANES)
        store_int(bytes + i, _mm512_sub_epi8(load_int(bytes + i), subtrahend));
}

#else

constexpr bool HAS_TILES = false;
inline bool tiles_permitted() { return false; }
struct TileRegisters {
    void configure() {}
};
inline void multiply_tile(const int8_t *, const uint8_t *, TileDots &) {}
inline void subtract_zero_point(uint8_t *, int, int) {}

#endif

}  // namespace hearth
