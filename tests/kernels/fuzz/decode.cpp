// hearth_decode(): what decode.py may pass, with tokens, positions, cells and tables of any value.
#include "kernels/native/decode.h"

#include "kernels/native/types.h"
#include "tests/kernels/fuzz/input.h"

namespace {

constexpr int TYPES[] = {hearth::TYPE_F32, hearth::TYPE_F16, hearth::TYPE_BF16};

class Model {
public:
    explicit Model(fuzz::Input &from) : input(from) {
        d.hidden = input.flag() ? input.number(1, 3) * 32 : input.number(1, 70);
        d.heads_kv = input.number(1, 3);
        d.heads = d.heads_kv * input.number(1, 6);
        d.head_dim = input.number(1, 5) * 16;
        d.rope_dim = input.number(1, d.head_dim / 2) * 2;
        d.feed_forward = input.flag() ? input.number(1, 3) * 32 : input.number(1, 70);
        d.max_positions = input.number(0, 60);
        d.blocks = input.number(0, 4);
        d.block_size = input.number(0, 20);
        d.cache_type = input.choice(TYPES);
        d.allow_bf16 = input.flag();
        d.epsilon = input.real();
        d.embedding = matrix(input.number(1, 20), d.hidden);
        d.norm = floats(d.hidden);
        d.count = input.number(1, 2);
        for (int64_t i = 0; i < d.count; i++) layers.push_back(layer());
        d.layers = layers.data();
    }

    // Numbers that mostly belong to the model.
    int64_t index(int64_t count) {
        return input.number(0, 31) ? input.number(0, count > 0 ? count - 1 : 0)
                                   : input.number(INT64_MIN, INT64_MAX);
    }

    fuzz::Input &input;
    hearth_decoder d = {};
    std::vector<fuzz::Memory> memory;

private:
    std::vector<hearth_layer> layers;
    std::vector<std::vector<hearth_matrix>> matrices;

    const float *floats(int64_t count) {
        memory.push_back(input.memory((size_t)count * sizeof(float)));
        return memory.back().floats();
    }
    hearth_matrix matrix(int64_t rows, int64_t k) {
        const bool blocks = k % 32 == 0 && input.flag();
        const int type = blocks ? (int)hearth::TYPE_Q8_0 : input.choice(TYPES);
        const int64_t stride = blocks ? k / 32 * 34 : k * (type == hearth::TYPE_F32 ? 4 : 2);
        memory.push_back(input.memory((size_t)(rows * stride), (size_t)input.number(0, 3)));
        return {memory.back().data(), rows, stride, type};
    }
    // As one matrix, or two, one below the other.
    hearth_projection projection(int64_t rows, int64_t k) {
        matrices.emplace_back();
        const int64_t first = input.flag() && rows > 1 ? input.number(1, rows - 1) : rows;
        matrices.back().push_back(matrix(first, k));
        if (first < rows) matrices.back().push_back(matrix(rows - first, k));
        const float *bias = input.flag() ? floats(rows) : nullptr;
        return {matrices.back().data(), (int64_t)matrices.back().size(), rows, k, bias};
    }
    char *cache() {
        const int64_t width = d.cache_type == hearth::TYPE_F32 ? 4 : 2;
        const int64_t numbers = d.blocks * d.block_size * d.heads_kv * d.head_dim;
        memory.push_back(input.memory((size_t)(numbers * width)));
        return memory.back().data();
    }
    hearth_layer layer() {
        const int64_t queries = d.heads * d.head_dim, keys = d.heads_kv * d.head_dim;
        hearth_layer l = {};
        l.qkv = projection(queries + 2 * keys, d.hidden);
        l.output = projection(d.hidden, queries);
        l.gate_up = projection(2 * d.feed_forward, d.hidden);
        l.down = projection(d.hidden, d.feed_forward);
        l.attention_norm = floats(d.hidden);
        l.feed_forward_norm = floats(d.hidden);
        l.q_norm = input.flag() ? floats(d.head_dim) : nullptr;
        l.k_norm = input.flag() ? floats(d.head_dim) : nullptr;
        l.cos = floats(d.max_positions * d.rope_dim / 2);
        l.sin = floats(d.max_positions * d.rope_dim / 2);
        l.k_cache = cache();
        l.v_cache = cache();
        l.window = input.flag() ? input.number(1, 70) : 0;
        l.scale = input.real();
        return l;
    }
};

// The tokens of a step, in memory that ends with them.
template <class T>
T *numbers(Model &model, const std::vector<T> &from) {
    model.memory.emplace_back(from.size() * sizeof(T));
    if (!from.empty())
        std::memcpy(model.memory.back().data(), from.data(), from.size() * sizeof(T));
    return (T *)model.memory.back().data();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    Model model(input);
    const hearth_decoder &d = model.d;
    hearth_step step = {};
    step.sequences = input.number(1, 3);
    step.table_blocks = input.number(0, 5);
    step.table_stride = step.table_blocks * input.number(0, 1) + input.number(0, 2);
    std::vector<int64_t> tokens, positions, cells;
    std::vector<int32_t> starts = {0}, tables;
    for (int64_t s = 0; s < step.sequences; s++) {
        int64_t position = model.index(d.max_positions);
        for (int64_t left = input.number(0, 15) ? input.number(1, 4) : 0; left > 0; left--) {
            tokens.push_back(model.index(d.embedding.rows));
            cells.push_back(model.index(d.blocks * d.block_size));
            positions.push_back(position);
            position = (int64_t)((uint64_t)position + 1);
        }
        starts.push_back(input.number(0, 31) ? (int32_t)tokens.size() : (int32_t)model.index(9));
    }
    const int64_t entries = (step.sequences - 1) * step.table_stride + step.table_blocks;
    for (int64_t i = 0; i < entries; i++) tables.push_back((int32_t)model.index(d.blocks));
    step.n = (int64_t)tokens.size();
    if (step.n == 0) return 0;
    step.tokens = numbers(model, tokens);
    step.positions = numbers(model, positions);
    step.cells = numbers(model, cells);
    step.starts = numbers(model, starts);
    step.block_tables = numbers(model, tables);
    step.out_type = input.flag() ? hearth::TYPE_F32 : hearth::TYPE_BF16;
    step.threads = (int32_t)input.number(1, 3);
    model.memory.emplace_back((size_t)(step.n * d.hidden) *
                              (step.out_type == hearth::TYPE_F32 ? 4 : 2));
    step.out = model.memory.back().data();
    if (hearth_decode(&d, &step) == HEARTH_OUT_OF_MEMORY) abort();  // there is memory
    return 0;
}
