// GGUF's block formats as bytes that dot() takes. Layouts: ggml's ggml-common.h.
//
// A value is scale x (byte - OFFSET), minus the group's least if the format has such; the byte is
// unsigned, or SIGNED. GROUP values share a scale; BLOCK values lie in one block of BYTES bytes. Both
// functions take a block of each of LANES rows: scales() writes LANES scales (and least values) for
// each group, values() a register for each four values, four bytes of every row. Packed bytes are
// turned before they are taken apart. Nothing behind a block is read: a file may end there.
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

// The same of 32 bytes.
inline void eights(Rows rows, int offset, ints *out) {
    __m256i bytes[LANES];
    for (int r = 0; r < LANES; r++) bytes[r] = _mm256_loadu_si256((const __m256i *)(rows[r] + offset));
    turn(bytes, out);
}

// Four bytes of each row.
inline ints words(Rows rows, int offset) {
    uint32_t word[LANES];
    for (int r = 0; r < LANES; r++) std::memcpy(word + r, rows[r] + offset, sizeof *word);
    return load(word);
}

inline ints bits_of(ints v, int from, int mask) { return both(right(v, from), all(mask)); }

// Some bits of every byte, in its lowest ones.
inline ints bits_of_bytes(ints v, int from, int count) {
    return bits_of(v, from, ((1 << count) - 1) * 0x01010101);
}

// Bits 4j to 4j + 3 of each word as 16 in four bytes.
inline ints fifth_bits(ints bits, int j) {
    return left(both(times(bits_of(bits, 4 * j, 15), 0x00204081), all(0x01010101)), 4);
}

// Signed bytes as dot() takes them.
inline ints plus_middle(ints v) { return unlike_bits(v, all((int32_t)(MIDDLE * 0x01010101u))); }

inline void put(uint8_t *out, int at, ints v) { store(out + at * 4 * LANES, v); }

// 16 bytes with two values each: the low halves are values 0 to 15, the high ones 16 to 31.
template <class Change>
void nibbles(Rows rows, int offset, uint8_t *out, Change change) {
    ints v[4];
    fours(rows, offset, v);
    for (int j = 0; j < 4; j++) {
        put(out, j, change(bits_of_bytes(v[j], 0, 4), j));
        put(out, j + 4, change(bits_of_bytes(v[j], 4, 4), j + 4));
    }
}

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
    static void values(Rows rows, uint8_t *out) {
        __m256i bytes[LANES];
        for (int r = 0; r < LANES; r++)
            bytes[r] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(rows[r] + 2)),
                                        _mm256_set1_epi8((char)MIDDLE));
        ints v[8];
        turn(bytes, v);
        for (int j = 0; j < 8; j++) put(out, j, v[j]);
    }
};

struct Q4_0 : Plain {
    static constexpr int BYTES = 18, OFFSET = 8;
    static void values(Rows rows, uint8_t *out) {
        nibbles(rows, 2, out, [](ints v, int) { return v; });
    }
};

struct Q4_1 : WithLeast {
    static constexpr int BYTES = 20;
    static void values(Rows rows, uint8_t *out) {
        nibbles(rows, 4, out, [](ints v, int) { return v; });
    }
};

struct Q5_0 : Plain {
    static constexpr int BYTES = 22, OFFSET = 16;
    static void values(Rows rows, uint8_t *out) {
        const ints bits = words(rows, 2);
        nibbles(rows, 6, out, [=](ints v, int j) { return either(v, fifth_bits(bits, j)); });
    }
};

struct Q5_1 : WithLeast {
    static constexpr int BYTES = 24;
    static void values(Rows rows, uint8_t *out) {
        const ints bits = words(rows, 4);
        nibbles(rows, 8, out, [=](ints v, int j) { return either(v, fifth_bits(bits, j)); });
    }
};

struct IQ4_NL : AllValues {
    static constexpr int BYTES = 18;
    static void values(Rows rows, uint8_t *out) {
        static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
        nibbles(rows, 2, out, [](ints v, int) { return plus_middle(looked_up(table, v)); });
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
    static void values(Rows rows, uint8_t *out) {
        static const int8_t table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        nibbles(rows, 1, out, [](ints v, int) { return plus_middle(looked_up(table, v)); });
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
};

struct Q4_K : SuperBlock {
    static constexpr int BYTES = 144;
    static void values(Rows rows, uint8_t *out) {
        for (int pair = 0; pair < 4; pair++) {
            ints v[8];
            eights(rows, 16 + 32 * pair, v);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                put(out, 16 * pair + j, bits_of_bytes(v[j], 0, 4));
                put(out, 16 * pair + 8 + j, bits_of_bytes(v[j], 4, 4));
            }
        }
    }
};

struct Q5_K : SuperBlock {
    static constexpr int BYTES = 176;
    static void values(Rows rows, uint8_t *out) {
        ints fifth[8];
        eights(rows, 16, fifth);
        for (int pair = 0; pair < 4; pair++) {
            ints v[8];
            eights(rows, 48 + 32 * pair, v);
            for (int j = 0; j < 16; j++) {
                const ints high = left(bits_of_bytes(fifth[j % 8], 2 * pair + j / 8, 1), 4);
                put(out, 16 * pair + j, either(bits_of_bytes(v[j % 8], j / 8 * 4, 4), high));
            }
        }
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
    static void values(Rows rows, uint8_t *out) {
        for (int side = 0; side < 2; side++) {
            ints high[8];
            eights(rows, 128 + 32 * side, high);
            for (int half = 0; half < 2; half++) {
                ints v[8];
                eights(rows, 64 * side + 32 * half, v);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const ints upper = right(high[j], 2 * half);
                    const ints first = left(bits_of_bytes(upper, 0, 2), 4), second = left(bits_of_bytes(upper, 4, 2), 4);
                    put(out, 32 * side + 8 * half + j, either(bits_of_bytes(v[j], 0, 4), first));
                    put(out, 32 * side + 16 + 8 * half + j, either(bits_of_bytes(v[j], 4, 4), second));
                }
            }
        }
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
    static void values(Rows rows, uint8_t *out) {
        for (int side = 0; side < 2; side++) {
            ints v[8];
            eights(rows, 16 + 32 * side, v);
            for (int j = 0; j < 32; j++) put(out, 32 * side + j, bits_of_bytes(v[j % 8], j / 8 * 2, 2));
        }
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
    static void values(Rows rows, uint8_t *out) {
        ints third[8];
        eights(rows, 0, third);
        for (int side = 0; side < 2; side++) {
            ints v[8];
            eights(rows, 32 + 32 * side, v);
            for (int j = 0; j < 32; j++) {
                const ints high = left(bits_of_bytes(third[j % 8], 4 * side + j / 8, 1), 2);
                put(out, 32 * side + j, either(bits_of_bytes(v[j % 8], j / 8 * 2, 2), high));
            }
        }
    }
};

}  // namespace hearth
