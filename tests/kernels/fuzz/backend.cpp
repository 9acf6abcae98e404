// ggml_backend_init(): graphs of the operations that the backend says it supports, over tensors and
// views as llama.cpp makes them.
#include <ggml-backend.h>
#include <ggml.h>

#include "tests/kernels/fuzz/input.h"

extern "C" ggml_backend_reg_t ggml_backend_init(void);

namespace {

constexpr ggml_type WEIGHTS[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,  GGML_TYPE_Q5_0,  GGML_TYPE_Q5_1,
                                 GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,  GGML_TYPE_Q3_K,  GGML_TYPE_Q4_K,
                                 GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,  GGML_TYPE_F16,   GGML_TYPE_F32,
                                 GGML_TYPE_BF16, GGML_TYPE_MXFP4, GGML_TYPE_IQ4_NL};
constexpr ggml_type CACHE[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                               GGML_TYPE_Q4_0};

class Graph {
public:
    Graph(fuzz::Input &from, ggml_context *context) : input(from), ctx(context) {}

    // A tensor of its own, or with a gap behind each row, or with dimensions 1 and 2 the other way
    // round in memory.
    ggml_tensor *tensor(ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2 = 1,
                        int64_t ne3 = 1) {
        const int64_t layout = input.number(0, 2), gap = layout == 1 ? ggml_blck_size(type) : 0;
        ggml_tensor *all = layout == 2 ? ggml_new_tensor_4d(ctx, type, ne0, ne2, ne1, ne3)
                                       : ggml_new_tensor_4d(ctx, type, ne0 + gap, ne1, ne2, ne3);
        memory.push_back(input.memory(ggml_nbytes(all)));
        all->data = memory.back().data();
        if (layout == 2) return ggml_permute(ctx, all, 0, 2, 1, 3);
        if (layout == 0) return all;
        return ggml_view_4d(ctx, all, ne0, ne1, ne2, ne3, all->nb[1], all->nb[2], all->nb[3], 0);
    }

    // Memory for what is computed.
    ggml_tensor *result(ggml_tensor *made) {
        memory.emplace_back(ggml_nbytes(made));
        made->data = memory.back().data();
        return made;
    }

    ggml_tensor *product(ggml_tensor *x) {
        const ggml_type type = input.choice(WEIGHTS);
        if (x->ne[0] % ggml_blck_size(type) != 0) return nullptr;
        return result(ggml_mul_mat(ctx, tensor(type, x->ne[0], input.size(1, 80, 200)), x));
    }

    ggml_tensor *expert_product() {
        const ggml_type type = input.choice(WEIGHTS);
        const int64_t k = input.number(1, 3) * 256, experts = input.number(1, 6);
        const int64_t used = input.number(1, 4), tokens = input.size(1, 8, 40);
        ggml_tensor *w = tensor(type, k, input.number(60, 100), experts);
        ggml_tensor *x = tensor(GGML_TYPE_F32, k, input.flag() ? used : 1, tokens);
        ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, used, tokens);
        memory.emplace_back(ggml_nbytes(ids));
        ids->data = memory.back().data();
        for (int64_t i = 0; i < used * tokens; i++)
            ((int32_t *)ids->data)[i] = (int32_t)(input.number(0, 63) ? input.number(0, experts - 1)
                                                                      : input.number(-2, 1 << 30));
        return result(ggml_mul_mat_id(ctx, w, x, ids));
    }

    ggml_tensor *attention() {
        const int64_t dim = input.number(1, 5) * 32, rows = input.size(1, 6, 40);
        const int64_t cells = input.size(1, 80, 400), heads_kv = input.number(1, 3);
        const int64_t heads = heads_kv * input.size(1, 4, 12);
        ggml_tensor *q = tensor(GGML_TYPE_F32, dim, rows, heads);
        ggml_tensor *k = tensor(input.choice(CACHE), dim, cells, heads_kv);
        ggml_tensor *v = tensor(input.choice(CACHE), dim, cells, heads_kv);
        ggml_tensor *mask = nullptr;
        const float max_bias = input.real();
        if (input.flag() || max_bias > 0) {
            mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, cells, rows + input.number(0, 3));
            memory.push_back(input.memory(ggml_nbytes(mask)));
            mask->data = memory.back().data();
        }
        ggml_tensor *out =
            ggml_flash_attn_ext(ctx, q, k, v, mask, input.real(), max_bias, input.real());
        if (input.flag()) {
            ggml_tensor *sinks = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, heads);
            memory.push_back(input.memory(ggml_nbytes(sinks)));
            sinks->data = memory.back().data();
            ggml_flash_attn_ext_add_sinks(out, sinks);
        }
        return result(out);
    }

    fuzz::Input &input;
    ggml_context *ctx;
    std::vector<fuzz::Memory> memory;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_init(), 0);
    static ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
    static auto set_threads = (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads");
    fuzz::Input input(data, size);
    ggml_context *ctx =
        ggml_init({64 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true});
    {
        Graph graph(input, ctx);
        ggml_cgraph *nodes = ggml_new_graph(ctx);
        const auto add = [&](ggml_tensor *node) {
            if (node && ggml_backend_dev_supports_op(device, node))
                ggml_build_forward_expand(nodes, node);
        };
        for (int64_t left = input.number(1, 3); left > 0; left--) {
            const int64_t kind = input.number(0, 2);
            if (kind == 0) {
                ggml_tensor *x =
                    graph.tensor(GGML_TYPE_F32, input.number(1, 20) * 32, input.size(1, 10, 80),
                                 input.number(1, 2), input.number(1, 2));
                for (int64_t i = input.number(1, 3); i > 0; i--) add(graph.product(x));
            } else {
                add(kind == 1 ? graph.expert_product() : graph.attention());
            }
        }
        set_threads(backend, (int)input.number(1, 3));
        ggml_backend_graph_compute(backend, nodes);
    }
    ggml_free(ctx);
    return 0;
}
