// Runs the kernels on numbers that are the same everywhere, for every format and type and for odd
// shapes, and prints a line for each case: its name and a hash of the bits of the results.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/native/attention.h"
#include "kernels/native/decode.h"
#include "kernels/native/linear.h"
#include "kernels/native/lora.h"
#include "kernels/native/matmul.h"
#include "kernels/native/types.h"

using namespace hearth;

namespace {

// The generator of Numerical Recipes, begun anew for every case.
struct Random {
    uint32_t state = 1;
    uint32_t next() { return state = state * 1664525u + 1013904223u; }
    int below(int end) { return (int)((uint64_t)next() * (uint32_t)end >> 32); }
    float real() { return (float)((int32_t)next() >> 8) / (float)(1 << 23); }  // from -1 to 1
    std::vector<float> reals(int64_t count) {
        std::vector<float> numbers((size_t)count);
        for (float &number : numbers) number = real();
        return numbers;
    }
    std::vector<uint8_t> bytes(int64_t count) {
        std::vector<uint8_t> made((size_t)count);
        for (uint8_t &byte : made) byte = (uint8_t)(next() >> 24);
        return made;
    }
    uint16_t scale() { return (uint16_t)(0x2000 + below(0x1000) + below(2) * 0x8000); }  // an f16
};

// FNV-1a of floats, NaN of any bits alike.
struct Hash {
    uint64_t value = 14695981039346656037u;
    void add(float number) {
        const uint32_t bits = number != number ? 0x7fc00000 : read<uint32_t>(&number);
        for (int i = 0; i < 32; i += 8) value = (value ^ (bits >> i & 255)) * 1099511628211u;
    }
    void add(const std::vector<float> &numbers) {
        for (const float number : numbers) add(number);
    }
    void print(const std::string &name) const {
        std::printf("%s %016llx\n", name.c_str(), (unsigned long long)value);
    }
};

std::string sizes(std::initializer_list<int64_t> numbers) {
    std::string text;
    for (const int64_t number : numbers) text += (text.empty() ? "" : "x") + std::to_string(number);
    return text;
}

void *aligned(std::vector<char> &memory, size_t size) {
    memory.resize(size + 64);
    return (void *)(((uintptr_t)memory.data() + 63) / 64 * 64);
}

// A block format: its 16-bit scales are at these offsets, -1: none.
struct Format {
    const char *name;
    int type, values, bytes, scale, min;
};
constexpr Format FORMATS[] = {
    {"Q4_0", TYPE_Q4_0, 32, 18, 0, -1},     {"Q4_1", TYPE_Q4_1, 32, 20, 0, 2},
    {"Q5_0", TYPE_Q5_0, 32, 22, 0, -1},     {"Q5_1", TYPE_Q5_1, 32, 24, 0, 2},
    {"Q8_0", TYPE_Q8_0, 32, 34, 0, -1},     {"IQ4_NL", TYPE_IQ4_NL, 32, 18, 0, -1},
    {"MXFP4", TYPE_MXFP4, 32, 17, -1, -1},  {"Q2_K", TYPE_Q2_K, 256, 84, 80, 82},
    {"Q3_K", TYPE_Q3_K, 256, 110, 108, -1}, {"Q4_K", TYPE_Q4_K, 256, 144, 0, 2},
    {"Q5_K", TYPE_Q5_K, 256, 176, 0, 2},    {"Q6_K", TYPE_Q6_K, 256, 210, 208, -1},
};

std::vector<uint8_t> blocks(Random &random, const Format &format, int64_t count) {
    std::vector<uint8_t> made = random.bytes(count * format.bytes);
    for (int64_t b = 0; b < count; b++) {
        uint8_t *block = made.data() + b * format.bytes;
        if (format.type == TYPE_MXFP4) *block = (uint8_t)random.below(140);
        for (const int offset : {format.scale, format.min})
            if (offset >= 0) {
                const uint16_t scale = random.scale();
                std::memcpy(block + offset, &scale, sizeof scale);
            }
    }
    return made;
}

// Numbers of a float type, or blocks of Q8_0.
std::vector<uint8_t> numbers(Random &random, int type, int64_t count) {
    if (type == TYPE_Q8_0) return blocks(random, FORMATS[4], count / 32);
    std::vector<uint8_t> made;
    for (int64_t i = 0; i < count; i++) {
        const float number = random.real();
        const uint16_t half = type == TYPE_F16 ? f32_to_f16(number) : f32_to_bf16(number);
        const uint8_t *from = type == TYPE_F32 ? (const uint8_t *)&number : (const uint8_t *)&half;
        made.insert(made.end(), from, from + (type == TYPE_F32 ? 4 : 2));
    }
    return made;
}

size_t bytes_of(int type, int64_t count) {
    return (size_t)(type == TYPE_Q8_0 ? count / 32 * 34 : count * (type == TYPE_F32 ? 4 : 2));
}

// y = the matrix by the columns of x, which have k numbers each.
void multiply(int type, hearth_matmul_matrix matrix, const std::vector<float> &x, int64_t k,
              int threads, std::vector<float> &y) {
    const int64_t columns = (int64_t)x.size() / k;
    std::vector<const float *> inputs;
    std::vector<float *> outputs;
    for (int64_t c = 0; c < columns; c++) {
        inputs.push_back(x.data() + c * k);
        outputs.push_back(y.data() + c * matrix.rows);
    }
    matrix.y = outputs.data();
    const hearth_matmul_columns set = {0, columns};
    std::vector<char> memory;
    void *workspace = aligned(memory, hearth_matmul_workspace_bytes(type, k, columns, 1, threads));
    const hearth_matmul_args args = {type, threads, k,       inputs.data(), 1,
                                     &set, 1,       &matrix, workspace};
    hearth_matmul(&args);
}

void matmul_case(const Format &format, int64_t rows, int64_t k, int64_t columns, int threads) {
    Random random;
    const std::vector<uint8_t> w = blocks(random, format, rows * (k / format.values));
    std::vector<float> x = random.reals(columns * k), y((size_t)(columns * rows));
    x[(size_t)(k - 1)] = 100;  // the others of its 32 become zeros, or nearly
    if (columns > 2) x[(size_t)(2 * k)] = NAN;
    if (columns > 3) std::fill_n(x.begin() + 3 * k, k, 0.0f);
    multiply(format.type, {w.data(), rows, (size_t)(k / format.values * format.bytes), 0, nullptr},
             x, k, threads, y);
    Hash hash;
    hash.add(y);
    hash.print(std::string("matmul ") + format.name + " " + sizes({rows, k, columns, threads}));
}

void float_matmul_case(int type, int64_t rows, int64_t k, int64_t columns) {
    Random random;
    const std::vector<uint8_t> w = numbers(random, type, rows * k);
    const std::vector<float> x = random.reals(columns * k);
    std::vector<float> y((size_t)(columns * rows));
    multiply(type, {w.data(), rows, bytes_of(type, k), 0, nullptr}, x, k, 2, y);
    Hash hash;
    hash.add(y);
    hash.print("product " + sizes({type, rows, k, columns}));
}

void matmul_cases() {
    for (const int type : {TYPE_F16, TYPE_BF16})
        for (const int64_t k : {64, 1057})
            for (const int64_t columns : {1, 2, 3, 7, 40}) float_matmul_case(type, 37, k, columns);

    for (const Format &format : FORMATS) {
        for (int64_t columns = 1; columns <= 10; columns++)
            matmul_case(format, 37, 512, columns, 1);
        for (const int64_t rows : {1, 7, 8, 9, 15, 16, 64}) matmul_case(format, rows, 256, 5, 2);
        matmul_case(format, 50, 1280, 19, 2);
        for (const int64_t columns : {63, 64, 65, 80, 91}) matmul_case(format, 50, 768, columns, 2);
        matmul_case(format, 9, 256, 530, 3);
    }
}

struct AttentionCase {
    const char *name;
    int type = TYPE_F16;
    int64_t rows = 3, cells = 70, head_dim = 64;
    int threads = 1;
    bool masked = true, sinks = false;
    float max_bias = 0, softcap = 0, large = 0;
};

void attention_case(const AttentionCase &of) {
    constexpr int64_t HEADS = 6, HEADS_KV = 2;
    Random random;
    const int64_t kept = of.cells * HEADS_KV * of.head_dim;
    std::vector<float> q = random.reals(of.rows * HEADS * of.head_dim), out(q.size());
    const std::vector<uint8_t> k = numbers(random, of.type, kept);
    std::vector<uint8_t> v = numbers(random, of.type, kept);
    if (of.large != 0) std::memcpy(v.data() + 4 * of.head_dim, &of.large, sizeof of.large);
    std::vector<uint16_t> mask;
    for (int64_t i = 0; i < of.rows * of.cells; i++)
        mask.push_back(random.below(3) == 0 ? 0xfc00 : random.below(2) ? 0 : 0xb800);
    const std::vector<float> sinks = random.reals(HEADS);
    const size_t head = bytes_of(of.type, of.head_dim);
    hearth_attention_args args = {};
    const size_t number = sizeof(float);
    args.q = {q.data(), HEADS * of.head_dim * number, of.head_dim * number, TYPE_F32, of.head_dim};
    args.k = {k.data(), HEADS_KV * head, head, of.type, of.head_dim};
    args.v = {v.data(), HEADS_KV * head, head, of.type, of.head_dim};
    args.out = out.data();
    args.out_row_bytes = args.q.row_bytes;
    args.out_head_bytes = args.q.head_bytes;
    if (of.masked) args.mask = mask.data();
    args.mask_row_bytes = (size_t)of.cells * sizeof(uint16_t);
    if (of.sinks) args.sinks = sinks.data();
    args.rows = of.rows, args.cells = of.cells, args.heads = HEADS, args.heads_kv = HEADS_KV;
    args.scale = 0.125f, args.max_bias = of.max_bias, args.softcap = of.softcap;
    args.threads = of.threads;
    std::vector<char> memory;
    args.workspace = aligned(memory, hearth_attention_workspace_bytes(&args));
    hearth_attention(&args);
    Hash hash;
    hash.add(out);
    hash.print(std::string("attention ") + of.name + " " +
               sizes({of.type, of.rows, of.cells, of.head_dim, of.threads}));
}

void attention_cases() {
    for (const int type : {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0})
        for (const int64_t cells : {1, 31, 64, 200})
            attention_case({"types", type, 3, cells, 64, 2});
    for (const int64_t head_dim : {16, 80, 128, 256})
        attention_case({"heads", TYPE_F16, 20, 100, head_dim, 1});
    attention_case({"plain", TYPE_F16, 7, 90, 64, 3, false});
    attention_case({"sinks", TYPE_F16, 7, 90, 64, 1, true, true});
    attention_case({"alibi", TYPE_F16, 7, 90, 64, 1, true, false, 8.0f});
    attention_case({"softcap", TYPE_F16, 7, 90, 64, 1, true, false, 0, 30.0f});
    attention_case({"large", TYPE_F32, 7, 90, 64, 2, true, false, 0, 0, 5000.0f});
    attention_case({"nan", TYPE_F32, 7, 90, 64, 2, true, false, 0, 0, NAN});
}

void linear_case(int type, int64_t rows, int64_t k, int64_t n, int x_type, int y_type) {
    Random random;
    const std::vector<uint8_t> w = numbers(random, type, rows * k);
    const std::vector<uint8_t> x = numbers(random, x_type, n * k);
    std::vector<uint8_t> y(bytes_of(y_type, n * rows));
    const hearth_matrix matrix = {w.data(), rows, (int64_t)bytes_of(type, k), type};
    hearth_linear_args args = {&matrix, 1, k, n, x.data(), k, y.data(), rows, x_type, y_type, 0, 2};
    Hash hash;
    if (!hearth_linear(&args)) std::abort();
    for (size_t i = 0; i < y.size(); i += bytes_of(y_type, 1))
        hash.add(y_type == TYPE_F32 ? read<float>(&y[i]) : bf16_to_f32(read<uint16_t>(&y[i])));
    hash.print("linear " + sizes({type, rows, k, n, x_type, y_type}));
}

void linear_cases() {
    for (const int type : {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0})
        for (const int64_t n : {1, 2, 3, 5, 32, 33, 70}) {
            linear_case(type, 37, 1120, n, TYPE_F32, TYPE_F32);
            linear_case(type, 20, 96, n, TYPE_BF16, TYPE_BF16);
            if (type != TYPE_Q8_0) linear_case(type, 9, 1057, n, TYPE_F32, TYPE_BF16);
        }
}

// Two layers, whose cache keeps what the steps before left.
class Decoder {
public:
    explicit Decoder(int cache_type) {
        d.hidden = 96, d.heads = 6, d.heads_kv = 2, d.head_dim = 32, d.rope_dim = 24;
        d.feed_forward = 100, d.max_positions = 40, d.blocks = 6, d.block_size = 8;
        d.cache_type = cache_type, d.epsilon = 1e-5f;
        d.embedding = matrix(TYPE_F16, 50, d.hidden);
        d.norm = reals(d.hidden);
        layers = {layer(TYPE_F32, 0), layer(TYPE_Q8_0, 5)};
        d.layers = layers.data(), d.count = (int64_t)layers.size();
    }
    hearth_decoder d = {};

private:
    Random random;
    std::vector<std::vector<uint8_t>> memory;
    std::vector<std::vector<hearth_matrix>> matrices;
    std::vector<hearth_layer> layers;

    const float *reals(int64_t count) {
        memory.push_back(numbers(random, TYPE_F32, count));
        return (const float *)memory.back().data();
    }
    hearth_matrix matrix(int type, int64_t rows, int64_t k) {
        if (k % 32 != 0) type = TYPE_BF16;
        memory.push_back(numbers(random, type, rows * k));
        return {memory.back().data(), rows, (int64_t)bytes_of(type, k), type};
    }
    hearth_projection projection(int type, int64_t rows, int64_t k) {
        matrices.push_back({matrix(type, rows, k)});
        return {matrices.back().data(), 1, rows, k, reals(rows)};
    }
    char *cache() {
        memory.emplace_back((size_t)(d.blocks * d.block_size * d.heads_kv * d.head_dim * 4));
        return (char *)memory.back().data();
    }
    hearth_layer layer(int type, int64_t window) {
        hearth_layer l = {};
        l.qkv = projection(type, (d.heads + 2 * d.heads_kv) * d.head_dim, d.hidden);
        l.output = projection(type, d.hidden, d.heads * d.head_dim);
        l.gate_up = projection(type, 2 * d.feed_forward, d.hidden);
        l.down = projection(type, d.hidden, d.feed_forward);
        l.attention_norm = reals(d.hidden), l.feed_forward_norm = reals(d.hidden);
        l.q_norm = reals(d.head_dim), l.k_norm = reals(d.head_dim);
        l.cos = reals(d.max_positions * d.rope_dim), l.sin = reals(d.max_positions * d.rope_dim);
        l.k_cache = cache(), l.v_cache = cache();
        l.window = window, l.scale = 0.2f;
        return l;
    }
};

void decode_cases() {
    for (const int type : {TYPE_F32, TYPE_F16, TYPE_BF16}) {
        Decoder decoder(type);
        const int32_t table[] = {4, 1, 3, 0, 5, 2};
        Hash hash;
        for (int64_t at = 0; at < 40;) {
            const int64_t n = at == 0 ? 20 : 1;
            const int32_t starts[] = {0, (int32_t)n};
            std::vector<int64_t> tokens, positions, cells;
            for (int64_t i = 0; i < n; i++, at++) {
                tokens.push_back(at * 7 % 50);
                positions.push_back(at);
                cells.push_back(table[at / 8] * 8 + at % 8);
            }
            std::vector<float> out((size_t)(n * decoder.d.hidden));
            const hearth_step step = {n,
                                      1,
                                      6,
                                      6,
                                      tokens.data(),
                                      positions.data(),
                                      cells.data(),
                                      table,
                                      starts,
                                      out.data(),
                                      TYPE_F32,
                                      2};
            if (hearth_decode(&decoder.d, &step) != HEARTH_OK) std::abort();
            hash.add(out);
        }
        hash.print("decode " + sizes({type}));
    }
}

// Two adapters of a format, the second with gains or not, on columns of which one has both.
void lora_case(int format, int64_t in, int64_t out, int64_t rank, bool gains) {
    constexpr int TYPES[] = {TYPE_F16, TYPE_Q8_0, TYPE_F32};
    Random random;
    const int64_t padded = (out + HEARTH_LORA_TILE - 1) / HEARTH_LORA_TILE * HEARTH_LORA_TILE;
    std::vector<std::vector<uint8_t>> a, b;
    std::vector<std::vector<float>> scales;
    std::vector<hearth_lora_pair> pairs;
    for (int i = 0; i < 2; i++) {
        a.push_back(numbers(random, TYPES[format], rank * in));
        b.push_back(format == HEARTH_LORA_BYTES ? random.bytes(rank * padded)
                                                : numbers(random, TYPES[format], rank * padded));
        scales.push_back(random.reals(padded));
        scales.push_back(random.reals(padded));
    }
    for (int i = 0; i < 2; i++)
        pairs.push_back({in, out, rank, format, a[i].data(), b[i].data(), scales[2 * i].data(),
                         gains && i == 1 ? scales[3].data() : nullptr});
    const int64_t n = 5;
    const hearth_lora_part part = {0, out, 2, pairs.data()};
    const hearth_lora_acting acting[] = {{0, 0, 1.0f}, {2, 0, -0.5f}, {2, 1, 0.7f}, {4, 1, 2.0f}};
    const hearth_lora_step step = {acting, 4};
    const std::vector<float> x = random.reals(n * in);
    std::vector<float> y = random.reals(n * out);
    if (!hearth_lora_add(&part, 1, &step, x.data(), in, n, y.data(), out, 2)) std::abort();
    Hash hash;
    hash.add(y);
    hash.print("lora " + sizes({format, in, out, rank, gains}));
}

void lora_cases() {
    for (const int format : {HEARTH_LORA_F16, HEARTH_LORA_BYTES, HEARTH_LORA_F32})
        for (const bool gains : {false, true}) {
            lora_case(format, 96, 200, 8, gains);
            lora_case(format, 1120, 77, 5, gains);
        }
}

}  // namespace

int main() {
    matmul_cases();
    attention_cases();
    linear_cases();
    decode_cases();
    lora_cases();
}
