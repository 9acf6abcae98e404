// GGUF's block formats as bytes that dot() takes. Layouts: ggml's ggml-common.h.
//
// A value is scale x (byte - OFFSET), minus the group's least if the format has such; the byte is
// unsigned, or SIGNED. GROUP values share a scale; BLOCK values lie in one block of BYTES bytes.
// scales() takes a block of each of LANES rows and writes LANES scales (and least values) for each
// group; values() gives 32 values of one block, part counting within it. Nothing behind a block is
// read: a file may end there.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace hearth {

using Rows = const uint8_t *const[LANES];

// The 16-bit floats at an offset in every row.
inline floats halves(Rows rows, int offset) {
    // inserted one by one: written to memory, they would have to arrive there before they are read
    const auto at = [&](int r) {
        uint16_t h;
        std::memcpy(&h, rows[r] + offset, sizeof h);
        return (short)h;
    };
    const auto eight = [&](int r) {
        return _mm_setr_epi16(at(r), at(r + 1), at(r + 2), at(r + 3), at(r + 4), at(r + 5), at(r + 6), at(r + 7));
    };
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_set_m128i(eight(8), eight(0)));
#else
    return _mm256_cvtph_ps(eight(0));
#endif
}

// Bytes 4j to 4j + 3 of the 16 at an offset in every row, shifted down by skip bytes, in out[j].
template <int SKIP = 0>
inline void fours(Rows rows, int offset, ints *out) {
    __m256i sixteen[LANES];
    for (int r = 0; r < LANES; r++)
        sixteen[r] = _mm256_zextsi128_si256(
            _mm_srli_si128(_mm_loadu_si128((const __m128i *)(rows[r] + offset)), SKIP));
    ints turned[8];
    turn(sixteen, turned);
    for (int j = 0; j < 4; j++) out[j] = turned[j];
}

inline ints bits_of(ints v, int from, int mask) { return both(right(v, from), all(mask)); }

inline __m256i bytes32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

inline __m256i low_bits(__m256i v, int bits) {
    return _mm256_and_si256(v, _mm256_set1_epi8((char)((1 << bits) - 1)));
}

// Bytes shifted right; what comes in from the neighbour is above the bits that are kept.
inline __m256i down(__m256i v, int bits) { return _mm256_srl_epi16(v, _mm_cvtsi32_si128(bits)); }

// 16 bytes with two values each: the low halves are values 0 to 15, the high ones 16 to 31.
inline __m256i nibbles16(const void *p) {
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    return low_bits(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), 4);
}

// Bit i of four bytes as 16 in byte i.
inline __m256i fifth_bits(const void *p) {
    int32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    const __m256i source = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), source);
    const __m256i mask = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

inline __m256i looked_up(const int8_t *table, __m256i nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), nibbles);
}

// Signed bytes as dot() takes them.
inline __m256i plus_middle(__m256i v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char)MIDDLE)); }

struct Plain {
    static constexpr int BLOCK = 32, GROUP = 32;
    static constexpr bool LEAST = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) { store(scale, halves(rows, 0)); }
};

struct WithLeast {
    static constexpr int BLOCK = 32, GROUP = 32, OFFSET = 0;
    static constexpr bool LEAST = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *least) {
        store(scale, halves(rows, 0));
        store(least, times(halves(rows, 2), all(-1.0f)));
    }
};

// 32 signed bytes, or what stands for such.
struct AllValues : Plain {
    static constexpr int OFFSET = MIDDLE;
    static constexpr bool SIGNED = MIDDLE == 0;
};

struct Q8_0 : AllValues {
    static constexpr int BYTES = 34;
    static __m256i values(const uint8_t *b, int) { return plus_middle(bytes32(b + 2)); }
};

struct Q4_0 : Plain {
    static constexpr int BYTES = 18, OFFSET = 8;
    static __m256i values(const uint8_t *b, int) { return nibbles16(b + 2); }
};

struct Q4_1 : WithLeast {
    static constexpr int BYTES = 20;
    static __m256i values(const uint8_t *b, int) { return nibbles16(b + 4); }
};

struct Q5_0 : Plain {
    static constexpr int BYTES = 22, OFFSET = 16;
    static __m256i values(const uint8_t *b, int) {
        return _mm256_or_si256(nibbles16(b + 6), fifth_bits(b + 2));
    }
};

struct Q5_1 : WithLeast {
    static constexpr int BYTES = 24;
    static __m256i values(const uint8_t *b, int) {
        return _mm256_or_si256(nibbles16(b + 8), fifth_bits(b + 4));
    }
};

struct IQ4_NL : AllValues {
    static constexpr int BYTES = 18;
    static __m256i values(const uint8_t *b, int) {
        static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
        return plus_middle(looked_up(table, nibbles16(b + 2)));
    }
};

struct MXFP4 : AllValues {
    static constexpr int BYTES = 17;
    static void scales(Rows rows, float *scale, float *) {
        // 2^(e - 128): the table holds twice the values. Below 2^-126 a float has no exponent left.
        for (int r = 0; r < LANES; r++) {
            const uint32_t e = *rows[r], bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
            std::memcpy(scale + r, &bits, sizeof bits);
        }
    }
    static __m256i values(const uint8_t *b, int) {
        static const int8_t table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        return plus_middle(looked_up(table, nibbles16(b + 1)));
    }
};

// 6-bit scales and least values of Q4_K and Q5_K, eight each in 12 bytes.
struct SuperBlock {
    static constexpr int BLOCK = 256, GROUP = 32, OFFSET = 0;
    static constexpr bool LEAST = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *least) {
        ints v[4];
        fours(rows, 0, v);
        const floats d = low_halves(v[0]), m = low_halves(right(v[0], 16));
        const ints six = all(0x3f3f3f3f), four = all(0x0f0f0f0f), two = all(0x03030303);
        const auto high = [&](ints w) { return left(both(right(w, 6), two), 4); };
        const ints scales[2] = {both(v[1], six), either(both(v[3], four), high(v[1]))};
        const ints leasts[2] = {both(v[2], six), either(both(right(v[3], 4), four), high(v[2]))};
        for (int j = 0; j < 8; j++) {
            store(scale + j * LANES, times(d, to_floats(bits_of(scales[j / 4], j % 4 * 8, 63))));
            store(least + j * LANES, times(m, to_floats(bits_of(leasts[j / 4], j % 4 * 8, 63))));
        }
    }
    static __m256i nibbles(const uint8_t *b, int part) {
        return low_bits(down(bytes32(b + part / 2 * 32), part % 2 * 4), 4);
    }
};

struct Q4_K : SuperBlock {
    static constexpr int BYTES = 144;
    static __m256i values(const uint8_t *b, int part) { return nibbles(b + 16, part); }
};

struct Q5_K : SuperBlock {
    static constexpr int BYTES = 176;
    static __m256i values(const uint8_t *b, int part) {
        const __m256i fifth = low_bits(down(bytes32(b + 16), part), 1);
        return _mm256_or_si256(nibbles(b + 48, part), _mm256_slli_epi16(fifth, 4));
    }
};

struct Q6_K {
    static constexpr int BLOCK = 256, BYTES = 210, GROUP = 16, OFFSET = 32;
    static constexpr bool LEAST = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) {
        ints v[4];
        fours(rows, 192, v);
        const floats d = halves(rows, 208);
        for (int j = 0; j < 16; j++)
            store(scale + j * LANES, times(d, to_floats(right_signed(left(v[j / 4], 24 - j % 4 * 8), 24))));
    }
    static __m256i values(const uint8_t *b, int part) {
        const int side = part / 4, quarter = part % 4;
        const __m256i low = low_bits(down(bytes32(b + side * 64 + quarter % 2 * 32), quarter / 2 * 4), 4);
        const __m256i high = low_bits(down(bytes32(b + 128 + side * 32), quarter * 2), 2);
        return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
    }
};

struct Q2_K {
    static constexpr int BLOCK = 256, BYTES = 84, GROUP = 16, OFFSET = 0;
    static constexpr bool LEAST = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *least) {
        ints v[4];
        fours(rows, 0, v);
        const floats d = halves(rows, 80), m = halves(rows, 82);
        for (int j = 0; j < 16; j++) {
            store(scale + j * LANES, times(d, to_floats(bits_of(v[j / 4], j % 4 * 8, 15))));
            store(least + j * LANES, times(m, to_floats(bits_of(v[j / 4], j % 4 * 8 + 4, 15))));
        }
    }
    static __m256i values(const uint8_t *b, int part) {
        return low_bits(down(bytes32(b + 16 + part / 4 * 32), part % 4 * 2), 2);
    }
};

struct Q3_K {
    static constexpr int BLOCK = 256, BYTES = 110, GROUP = 16, OFFSET = 4;
    static constexpr bool LEAST = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) {
        ints v[4];  // 12 bytes of scales, behind them the common one
        fours<2>(rows, 94, v);
        const floats d = low_halves(v[3]);
        for (int j = 0; j < 16; j++) {
            const ints low = bits_of(v[j / 4 % 2], j % 4 * 8 + j / 8 * 4, 15);
            const ints high = left(bits_of(v[2], j % 4 * 8 + j / 4 * 2, 3), 4);
            const floats whole = to_floats(either(low, high));
            store(scale + j * LANES, times(d, plus_product(all(-32.0f), all(1.0f), whole)));
        }
    }
    static __m256i values(const uint8_t *b, int part) {
        const __m256i low = low_bits(down(bytes32(b + 32 + part / 4 * 32), part % 4 * 2), 2);
        const __m256i high = low_bits(down(bytes32(b), part), 1);
        return _mm256_or_si256(low, _mm256_slli_epi16(high, 2));
    }
};

}  // namespace hearth
