// ggml's types, and three that no file has: their numbers, and how rows of plain numbers, of Q8_0
// and of weights that were quantized while loading are read into registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simd.h"

namespace hearth {

// Of enum ggml_type, what the kernels know.
enum Type {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_IQ4_NL = 20,
    TYPE_I8 = 24,
    TYPE_BF16 = 30,
    TYPE_MXFP4 = 39,
    FIRST_OWN_TYPE = 1000,
    TYPE_F8_E4M3 = FIRST_OWN_TYPE,
    TYPE_I4 = FIRST_OWN_TYPE + 1,
};

template <class T>
inline T read(const void *from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// visit(N), a compile-time constant, for a number from 1 to MAX; MAX for a larger one.
template <int MAX, int N = 1, class Visit>
void with_count(int64_t number, Visit visit) {
    if constexpr (N < MAX)
        if (number > N) return with_count<MAX, N + 1>(number, visit);
    visit(std::integral_constant<int, N>{});
}

inline float bf16_to_f32(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    return read<float>(&wide);
}

inline uint16_t f32_to_bf16(float number) {
    const uint32_t bits = read<uint32_t>(&number);
    return number != number ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A row of a type: where number i lies, the LANES numbers from number i on, i a multiple of LANES,
// and number i, all as float32.
struct F32Row {
    static const char *address(const char *row, int64_t i) { return row + 4 * i; }
    static vec_f32 lanes(const char *row, int64_t i) { return load((const float *)row + i); }
    static float scalar(const char *row, int64_t i) { return read<float>(row + 4 * i); }
};
struct BF16Row {
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static vec_f32 lanes(const char *row, int64_t i) { return load_bf16(row + 2 * i); }
    static float scalar(const char *row, int64_t i) {
        return bf16_to_f32(read<uint16_t>(row + 2 * i));
    }
};
struct F16Row {
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static vec_f32 lanes(const char *row, int64_t i) { return load_f16(row + 2 * i); }
    static float scalar(const char *row, int64_t i) {
        return f16_to_f32(read<uint16_t>(row + 2 * i));
    }
};
struct Q8_0Row {  // blocks of a scale in float16 and 32 signed bytes
    static constexpr int BLOCK_SIZE = 32, BLOCK_BYTES = 34;
    static const char *address(const char *row, int64_t i) {
        return row + i / BLOCK_SIZE * BLOCK_BYTES;
    }
    static float scale(const char *block) { return f16_to_f32(read<uint16_t>(block)); }
    static vec_f32 lanes(const char *row, int64_t i) {
        const char *block = address(row, i);
        return mul(load_i8(block + 2 + i % BLOCK_SIZE), broadcast(scale(block)));
    }
    static float scalar(const char *row, int64_t i) {
        const char *block = address(row, i);
        return scale(block) * (float)(int8_t)block[2 + i % BLOCK_SIZE];
    }
};

struct I8Row {  // their scale, one a row, is not here
    static const char *address(const char *row, int64_t i) { return row + i; }
    static vec_f32 lanes(const char *row, int64_t i) { return load_i8(row + i); }
    static float scalar(const char *row, int64_t i) { return (float)(int8_t)row[i]; }
};
struct F8Row {  // e4m3fn without its NaN: sign, four bits of exponent from -7, three of mantissa
    static const char *address(const char *row, int64_t i) { return row + i; }
    static vec_f32 lanes(const char *row, int64_t i) {
        const vec_int v = load_u8(row + i);
        const vec_int magnitude = sll(and_(v, broadcast((int32_t)0x7f)), 20);
        const vec_int sign = sll(and_(v, broadcast((int32_t)0x80)), 24);
        return mul(bitcast_f32(xor_(magnitude, sign)), broadcast(0x1p120f));
    }
    static float scalar(const char *row, int64_t i) {
        const uint32_t byte = (uint8_t)row[i], bits = (byte & 0x7f) << 20 | (byte & 0x80) << 24;
        return read<float>(&bits) * 0x1p120f;
    }
};
// Blocks of a scale and a minimum in float16 and 32 bytes: the low halves of the first 16 are
// values 0 to 15, the high ones 16 to 31, and so on. A value is scale x number + minimum.
struct I4Row {
    static constexpr int BLOCK_SIZE = 64, BLOCK_BYTES = 36;
    static const char *address(const char *row, int64_t i) {
        return row + i / BLOCK_SIZE * BLOCK_BYTES;
    }
    static float scale(const char *block) { return f16_to_f32(read<uint16_t>(block)); }
    static float min(const char *block) { return f16_to_f32(read<uint16_t>(block + 2)); }
    static const char *bytes(const char *block, int64_t i) {
        return block + 4 + i % BLOCK_SIZE / 32 * 16 + i % 16;
    }
    static vec_f32 lanes(const char *row, int64_t i) {
        const char *block = address(row, i);
        const vec_int v = srl(load_u8(bytes(block, i)), (int)(i % 32 / 16 * 4));
        const vec_int number = and_(v, broadcast((int32_t)15));
        return fma(cvt_f32(number), broadcast(scale(block)), broadcast(min(block)));
    }
    static float scalar(const char *row, int64_t i) {
        const char *block = address(row, i);
        const int byte = (uint8_t)*bytes(block, i);
        return __builtin_fmaf((float)(byte >> i % 32 / 16 * 4 & 15), scale(block), min(block));
    }
};

// visit(Row{}) for the row of a type; BF16 where it is none of the others.
template <class Visit>
auto with_float_row(int type, Visit visit) {
    switch (type) {
    case TYPE_F32: return visit(F32Row{});
    case TYPE_F16: return visit(F16Row{});
    default: return visit(BF16Row{});
    }
}
template <class Visit>
auto with_row(int type, Visit visit) {
    switch (type) {
    case TYPE_Q8_0: return visit(Q8_0Row{});
    case TYPE_I8: return visit(I8Row{});
    case TYPE_F8_E4M3: return visit(F8Row{});
    case TYPE_I4: return visit(I4Row{});
    default: return with_float_row(type, visit);
    }
}

}  // namespace hearth
