// What a fuzzer's bytes stand for: sizes, numbers, and memory that ends exactly where it is said
// to.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace fuzz {

// Memory of exactly this size: the byte behind it is poisoned. Its begin is `offset` bytes behind
// an address that every type can have.
class Memory {
public:
    explicit Memory(size_t size, size_t offset = 0) : offset_(offset) {
        void *found = nullptr;
        if (posix_memalign(&found, 64, offset + size) != 0) abort();
        all_ = (char *)found;
    }
    Memory(Memory &&other) noexcept : all_(other.all_), offset_(other.offset_) {
        other.all_ = nullptr;
    }
    Memory(const Memory &) = delete;
    ~Memory() { std::free(all_); }
    char *data() const { return all_ + offset_; }
    float *floats() const { return (float *)data(); }

private:
    char *all_;
    size_t offset_;
};

class Input {
public:
    Input(const uint8_t *data, size_t size) : provider_(data, size) {}

    int64_t number(int64_t low, int64_t high) {
        return provider_.ConsumeIntegralInRange<int64_t>(low, high);
    }
    bool flag() { return provider_.ConsumeBool(); }

    // Mostly a small number, at times one up to `high`.
    int64_t size(int64_t low, int64_t small, int64_t high) {
        return number(0, 7) == 0 ? number(low, high) : number(low, small);
    }

    template <class T, size_t N>
    T choice(const T (&of)[N]) {
        return provider_.PickValueInArray(of);
    }

    // What a model's parameter or a request may come to.
    float real() {
        static const float VALUES[] = {0.0f,
                                       1.0f,
                                       -1.0f,
                                       0.125f,
                                       1e-5f,
                                       50.0f,
                                       1e30f,
                                       std::numeric_limits<float>::max(),
                                       std::numeric_limits<float>::denorm_min(),
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity(),
                                       std::numeric_limits<float>::quiet_NaN()};
        return choice(VALUES);
    }

    // Bytes of any kind, or F32, F16 and BF16 that are small, with infinities and NaN between.
    Memory memory(size_t size, size_t offset = 0) {
        Memory made(size, offset);
        const int kind = (int)number(0, 3);
        uint64_t state = (uint64_t)number(0, 255);
        for (size_t i = 0; i < size; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const uint8_t random = (uint8_t)(state >> 56);
            made.data()[i] = (char)(kind == 0 ? 0 : kind == 1 ? i % 2 ? 0x3c : random : random);
        }
        if (kind == 3)  // 0x7c00, 0xfc00, 0x7f80, 0x7fc0: of F16, BF16 and the high half of F32
            for (size_t i = 0; i + 2 <= size; i += 2) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                static const uint16_t SPECIAL[] = {0x7c00, 0xfc00, 0x7f80, 0x7fc0, 0xff80, 0x7bff};
                if (state >> 60 == 0) std::memcpy(made.data() + i, &SPECIAL[(state >> 40) % 6], 2);
            }
        return made;
    }

private:
    FuzzedDataProvider provider_;
};

}  // namespace fuzz
