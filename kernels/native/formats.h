// GGUF's block formats, unpacked to the bytes that dot() takes. Layouts: ggml's ggml-common.h.
//
// A value is scale x (byte - ZERO_POINT), minus the group's minimum where the format HAS_MIN; the
// byte is unsigned, or SIGNED. GROUP_SIZE values share a scale; BLOCK_SIZE values lie in one block
// of BLOCK_BYTES bytes. Both functions take the same block of LANES rows: scales() writes LANES
// scales (and minima) for each group, values() eight registers for each 32 values, in one of two
// orders; what takes packed bytes apart is the same in both. Nothing behind a block is read: a file
// may end there.
//
// A format is a struct here with its number in types.h, and a name in BlockFormats at the end.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"
#include "types.h"

namespace hearth {

using Rows = const uint8_t *const[LANES];

// How values lie in registers. BY_COLUMN: register j has values 4j to 4j + 3 of every row, one row
// in a lane, to which packed bytes are transposed. BY_ROW: register 4h + i has values 16h to 16h +
// 15 of rows i, i + 4 and so on, each in 128 bits. The first is for several columns, whose sums
// then lie in the lanes; for one it costs less to transpose its sums.
enum class Order { BY_COLUMN, BY_ROW };

// out [4]: bytes 4j to 4j + 3 of the 16 at an offset in every row, shifted down by SHIFT bytes.
template <int SHIFT = 0>
inline void transpose_16_bytes(Rows rows, int offset, vec_int *out) {
    bytes_32 bytes[LANES];
    for (int r = 0; r < LANES; r++) bytes[r] = load_16_bytes<SHIFT>(rows[r] + offset);
    vec_int transposed[8];
    transpose(bytes, transposed);
    for (int j = 0; j < 4; j++) out[j] = transposed[j];
}

// out [4] or [8]: the 16 or 32 bytes at an offset in every row.
template <Order ORDER>
void take_16_bytes(Rows rows, int offset, vec_int *out) {
    if constexpr (ORDER == Order::BY_COLUMN) return transpose_16_bytes(rows, offset, out);
    for (int i = 0; i < 4; i++) out[i] = load_quarters(rows + i, offset);
}
template <Order ORDER>
void take_32_bytes(Rows rows, int offset, vec_int *out) {
    if constexpr (ORDER == Order::BY_COLUMN) {
        bytes_32 bytes[LANES];
        for (int r = 0; r < LANES; r++) bytes[r] = load_32_bytes(rows[r] + offset);
        return transpose(bytes, out);
    }
    for (int half = 0; half < 2; half++)
        take_16_bytes<ORDER>(rows, offset + 16 * half, out + 4 * half);
}

// Bits of each lane, of each byte of it, from bit `shift` on, moved down to the lowest ones.
inline vec_int bits(vec_int v, int shift, int mask) { return and_(srl(v, shift), broadcast(mask)); }
inline vec_int byte_bits(vec_int v, int shift, int count) {
    return bits(v, shift, ((1 << count) - 1) * 0x01010101);
}

// Of a word for each row: the bits that belong to the values of register j, each as bit 4 of a
// byte.
template <Order ORDER>
vec_int fifth_bits(vec_int word, int j) {
    if constexpr (ORDER == Order::BY_ROW) return spread_half(word, j % 4, j / 4);
    const vec_int spread = mul_i32(bits(word, 4 * j, 15), 0x00204081);
    return sll(and_(spread, broadcast(0x01010101)), 4);
}

// Signed bytes as dot() takes them.
inline vec_int add_zero_point(vec_int v) {
    return xor_(v, broadcast((int32_t)(SIGNED_ZERO_POINT * 0x01010101u)));
}

// Register i.
inline void store_values(uint8_t *out, int i, vec_int v) { store_int(out + i * 4 * LANES, v); }

// 16 bytes with two values each: the low halves are values 0 to 15, the high ones 16 to 31.
// complete(v, j) makes bytes for dot() of the halves that are register j.
template <Order ORDER, class Complete>
void unpack_nibbles(Rows rows, int offset, uint8_t *out, Complete complete) {
    vec_int v[4];
    take_16_bytes<ORDER>(rows, offset, v);
    for (int j = 0; j < 4; j++) {
        store_values(out, j, complete(byte_bits(v[j], 0, 4), j));
        store_values(out, j + 4, complete(byte_bits(v[j], 4, 4), j + 4));
    }
}

struct WithScale {
    static constexpr int BLOCK_SIZE = 32, GROUP_SIZE = 32;
    static constexpr bool HAS_MIN = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) { store(scale, gather_f16(rows, 0)); }
};

struct WithScaleAndMin {
    static constexpr int BLOCK_SIZE = 32, GROUP_SIZE = 32, ZERO_POINT = 0;
    static constexpr bool HAS_MIN = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *min) {
        const vec_int both = gather_u32(rows, 0);
        store(scale, cvt_f16(both));
        store(min, mul(cvt_f16(srl(both, 16)), broadcast(-1.0f)));
    }
};

// 32 signed bytes, or what stands for such.
struct SignedBytes : WithScale {
    static constexpr int ZERO_POINT = SIGNED_ZERO_POINT;
    static constexpr bool SIGNED = SIGNED_ZERO_POINT == 0;
};

struct Q8_0 : SignedBytes {
    static constexpr int TYPE = TYPE_Q8_0, BLOCK_BYTES = 34;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        vec_int v[8];
        take_32_bytes<ORDER>(rows, 2, v);
        for (int j = 0; j < 8; j++) store_values(out, j, add_zero_point(v[j]));
    }
};

struct Q4_0 : WithScale {
    static constexpr int TYPE = TYPE_Q4_0, BLOCK_BYTES = 18, ZERO_POINT = 8;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        unpack_nibbles<ORDER>(rows, 2, out, [](vec_int v, int) { return v; });
    }
};

struct Q4_1 : WithScaleAndMin {
    static constexpr int TYPE = TYPE_Q4_1, BLOCK_BYTES = 20;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        unpack_nibbles<ORDER>(rows, 4, out, [](vec_int v, int) { return v; });
    }
};

struct Q5_0 : WithScale {
    static constexpr int TYPE = TYPE_Q5_0, BLOCK_BYTES = 22, ZERO_POINT = 16;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        const vec_int fifth = gather_u32(rows, 2);
        unpack_nibbles<ORDER>(
            rows, 6, out, [=](vec_int v, int j) { return or_(v, fifth_bits<ORDER>(fifth, j)); });
    }
};

struct Q5_1 : WithScaleAndMin {
    static constexpr int TYPE = TYPE_Q5_1, BLOCK_BYTES = 24;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        const vec_int fifth = gather_u32(rows, 4);
        unpack_nibbles<ORDER>(
            rows, 8, out, [=](vec_int v, int j) { return or_(v, fifth_bits<ORDER>(fifth, j)); });
    }
};

struct IQ4_NL : SignedBytes {
    static constexpr int TYPE = TYPE_IQ4_NL, BLOCK_BYTES = 18;
    static constexpr int8_t TABLE[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        unpack_nibbles<ORDER>(rows, 2, out,
                              [](vec_int v, int) { return add_zero_point(lookup(TABLE, v)); });
    }
};

struct MXFP4 : SignedBytes {
    static constexpr int TYPE = TYPE_MXFP4, BLOCK_BYTES = 17;
    static constexpr int8_t TABLE[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static void scales(Rows rows, float *scale, float *) {
        // 2^(e - 128): the table holds twice the values. Below 2^-126 a float has no exponent left.
        const vec_int e = and_(gather_u32(rows, 0), broadcast((int32_t)0xff));
        const vec_int normal = sll(add_i32(e, broadcast((int32_t)-1)), 23);  // -infinity for 0
        const vec_int small = add_i32(sll(and_(e, broadcast((int32_t)1)), 21), broadcast(1 << 21));
        store(scale, max(bitcast_f32(normal), bitcast_f32(small)));
    }
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        unpack_nibbles<ORDER>(rows, 1, out,
                              [](vec_int v, int) { return add_zero_point(lookup(TABLE, v)); });
    }
};

// Of Q4_K and Q5_K: 6-bit scales and minima, eight each in 12 bytes behind their common factors.
struct WithPackedScales {
    static constexpr int BLOCK_SIZE = 256, GROUP_SIZE = 32, ZERO_POINT = 0;
    static constexpr bool HAS_MIN = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *min) {
        vec_int v[4];
        transpose_16_bytes(rows, 0, v);
        const vec_f32 d = cvt_f16(v[0]), dmin = cvt_f16(srl(v[0], 16));
        const vec_int six = broadcast(0x3f3f3f3f), four = broadcast(0x0f0f0f0f);
        const auto high = [&](vec_int w) { return sll(byte_bits(w, 6, 2), 4); };
        const vec_int scales[2] = {and_(v[1], six), or_(and_(v[3], four), high(v[1]))};
        const vec_int mins[2] = {and_(v[2], six), or_(byte_bits(v[3], 4, 4), high(v[2]))};
        for (int j = 0; j < 8; j++) {
            store(scale + j * LANES, mul(d, cvt_f32(bits(scales[j / 4], j % 4 * 8, 63))));
            store(min + j * LANES, mul(dmin, cvt_f32(bits(mins[j / 4], j % 4 * 8, 63))));
        }
    }
};

struct Q4_K : WithPackedScales {
    static constexpr int TYPE = TYPE_Q4_K, BLOCK_BYTES = 144;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        for (int pair = 0; pair < 4; pair++) {
            vec_int v[8];
            take_32_bytes<ORDER>(rows, 16 + 32 * pair, v);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                store_values(out, 16 * pair + j, byte_bits(v[j], 0, 4));
                store_values(out, 16 * pair + 8 + j, byte_bits(v[j], 4, 4));
            }
        }
    }
};

struct Q5_K : WithPackedScales {
    static constexpr int TYPE = TYPE_Q5_K, BLOCK_BYTES = 176;
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        vec_int fifth[8];
        take_32_bytes<ORDER>(rows, 16, fifth);
        for (int pair = 0; pair < 4; pair++) {
            vec_int v[8];
            take_32_bytes<ORDER>(rows, 48 + 32 * pair, v);
            for (int j = 0; j < 16; j++) {
                const vec_int high = sll(byte_bits(fifth[j % 8], 2 * pair + j / 8, 1), 4);
                store_values(out, 16 * pair + j, or_(byte_bits(v[j % 8], j / 8 * 4, 4), high));
            }
        }
    }
};

struct Q6_K {
    static constexpr int TYPE = TYPE_Q6_K, BLOCK_BYTES = 210;
    static constexpr int BLOCK_SIZE = 256, GROUP_SIZE = 16, ZERO_POINT = 32;
    static constexpr bool HAS_MIN = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) {
        vec_int v[4];
        transpose_16_bytes(rows, 192, v);
        const vec_f32 d = gather_f16(rows, 208);
        for (int j = 0; j < 16; j++) {
            const vec_int signed_byte = sra(sll(v[j / 4], 24 - j % 4 * 8), 24);
            store(scale + j * LANES, mul(d, cvt_f32(signed_byte)));
        }
    }
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        for (int side = 0; side < 2; side++) {
            vec_int high[8];
            take_32_bytes<ORDER>(rows, 128 + 32 * side, high);
            for (int half = 0; half < 2; half++) {
                vec_int v[8];
                take_32_bytes<ORDER>(rows, 64 * side + 32 * half, v);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const int i = 32 * side + 8 * half + j;
                    const vec_int upper = srl(high[j], 2 * half);
                    const vec_int first = sll(byte_bits(upper, 0, 2), 4);
                    const vec_int second = sll(byte_bits(upper, 4, 2), 4);
                    store_values(out, i, or_(byte_bits(v[j], 0, 4), first));
                    store_values(out, i + 16, or_(byte_bits(v[j], 4, 4), second));
                }
            }
        }
    }
};

struct Q2_K {
    static constexpr int TYPE = TYPE_Q2_K, BLOCK_BYTES = 84;
    static constexpr int BLOCK_SIZE = 256, GROUP_SIZE = 16, ZERO_POINT = 0;
    static constexpr bool HAS_MIN = true, SIGNED = false;
    static void scales(Rows rows, float *scale, float *min) {
        vec_int v[4];
        transpose_16_bytes(rows, 0, v);
        const vec_f32 d = gather_f16(rows, 80), dmin = gather_f16(rows, 82);
        for (int j = 0; j < 16; j++) {
            store(scale + j * LANES, mul(d, cvt_f32(bits(v[j / 4], j % 4 * 8, 15))));
            store(min + j * LANES, mul(dmin, cvt_f32(bits(v[j / 4], j % 4 * 8 + 4, 15))));
        }
    }
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        for (int side = 0; side < 2; side++) {
            vec_int v[8];
            take_32_bytes<ORDER>(rows, 16 + 32 * side, v);
            for (int j = 0; j < 32; j++)
                store_values(out, 32 * side + j, byte_bits(v[j % 8], j / 8 * 2, 2));
        }
    }
};

struct Q3_K {
    static constexpr int TYPE = TYPE_Q3_K, BLOCK_BYTES = 110;
    static constexpr int BLOCK_SIZE = 256, GROUP_SIZE = 16, ZERO_POINT = 4;
    static constexpr bool HAS_MIN = false, SIGNED = false;
    static void scales(Rows rows, float *scale, float *) {
        vec_int v[4];  // 12 bytes of scales, behind them their common factor
        transpose_16_bytes<2>(rows, 94, v);
        const vec_f32 d = cvt_f16(v[3]);
        for (int j = 0; j < 16; j++) {
            const vec_int low = bits(v[j / 4 % 2], j % 4 * 8 + j / 8 * 4, 15);
            const vec_int high = sll(bits(v[2], j % 4 * 8 + j / 4 * 2, 3), 4);
            store(scale + j * LANES, mul(d, sub(cvt_f32(or_(low, high)), broadcast(32.0f))));
        }
    }
    template <Order ORDER>
    static void values(Rows rows, uint8_t *out) {
        vec_int third[8];
        take_32_bytes<ORDER>(rows, 0, third);
        for (int side = 0; side < 2; side++) {
            vec_int v[8];
            take_32_bytes<ORDER>(rows, 32 + 32 * side, v);
            for (int j = 0; j < 32; j++) {
                const vec_int high = sll(byte_bits(third[j % 8], 4 * side + j / 8, 1), 2);
                store_values(out, 32 * side + j, or_(byte_bits(v[j % 8], j / 8 * 2, 2), high));
            }
        }
    }
};

template <class... F>
struct FormatList {};
using BlockFormats =
    FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K>;

// visit(F{}) for the format of a type. False: there is none.
template <class Visit, class... F>
bool with_format(int type, FormatList<F...>, Visit visit) {
    return ((type == F::TYPE && (visit(F{}), true)) || ...);
}

}  // namespace hearth
