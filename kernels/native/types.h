// ggml's types: their numbers, and how rows of plain numbers and of Q8_0 are read into registers.
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
    TYPE_BF16 = 30,
    TYPE_MXFP4 = 39,
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
    return type == TYPE_Q8_0 ? visit(Q8_0Row{}) : with_float_row(type, visit);
}

}  // namespace hearth
