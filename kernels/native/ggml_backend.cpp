// matmul.h, attention.h and lora.h as a backend of ggml, which llama.cpp asks before its own for
// the operations that it supports. It computes on the processor, with the tensors of the
// processor's buffers.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "adapters.h"
#include "attention.h"
#include "ggml_interface.h"
#include "lora.h"
#include "matmul.h"

// HEARTH_GGML is the version and the commit of ggml that this is compiled for.
#ifndef HEARTH_GGML
#error "HEARTH_GGML is not defined"
#endif

namespace {

constexpr char NAME[] = "hearth";
constexpr char DESCRIPTION[] = "hearth's kernels for the processor";
constexpr int64_t MIN_ROWS = 64;  // of a matrix: fewer are not worth the way to another backend

bool fine_inputs = false;  // see hearth_set_fine_inputs()

// What a backend owns. The vectors keep their memory from one operation to the next.
struct Context {
    int threads = 1;
    void *workspace = nullptr;
    size_t workspace_bytes = 0;
    std::vector<const float *> x;
    std::vector<float *> y;
    std::vector<hearth_matmul_columns> column_sets;
    std::vector<hearth_matmul_matrix> matrices;
    std::vector<int64_t> next_column;
    std::vector<const ggml_tensor *> nodes;
    const ggml_tensor *shrunk = nullptr;  // the product with lora_a whose sum is still to come
    std::vector<hearth_lora_use> uses;    // of its adapters
    std::vector<float> hidden;
    int64_t hidden_stride = 0;

    // False where memory is short.
    bool reserve(size_t bytes) {
        if (bytes <= workspace_bytes) return true;
        std::free(workspace);
        // half as much again: a cache in use grows with every token
        workspace_bytes = (bytes + bytes / 2 + 4095) / 4096 * 4096;
        workspace = std::aligned_alloc(64, workspace_bytes);
        if (workspace == nullptr) workspace_bytes = 0;
        return workspace != nullptr;
    }
    ~Context() { std::free(workspace); }
};

bool is_view(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
           op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

int64_t columns_of(const ggml_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

bool supports_product(const ggml_tensor *y) {
    const ggml_tensor *w = y->src[0], *x = y->src[1];
    return hearth_matmul_supports(w->type, w->ne[0]) && w->nb[0] == ggml_type_size(w->type) &&
           w->ne[1] >= MIN_ROWS && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) &&
           y->type == GGML_TYPE_F32 && y->nb[0] == sizeof(float) && w->ne[3] == 1 &&
           (y->op == GGML_OP_MUL_MAT_ID || w->ne[2] == 1);
}

template <class T>
T *column(const ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
    return (T *)((char *)t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
}

template <class T>
void add_columns(std::vector<T *> &to, const ggml_tensor *t) {
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++) to.push_back(column<T>(t, i1, i2, i3));
}

// Adds products of the same columns with matrices of one format.
void add_products(Context &context, const ggml_tensor *const *products, int count) {
    const int64_t columns = columns_of(products[0]->src[1]);
    add_columns(context.x, products[0]->src[1]);
    context.column_sets.push_back({0, columns});
    for (int i = 0; i < count; i++) add_columns(context.y, products[i]);
    for (int i = 0; i < count; i++) {
        const ggml_tensor *w = products[i]->src[0];
        context.matrices.push_back(
            {w->data, w->ne[1], w->nb[1], 0, context.y.data() + i * columns});
    }
}

// Adds a matrix for each expert, and the columns of the tokens routed to it. False: no such expert.
bool add_experts(Context &context, const ggml_tensor *y) {
    const ggml_tensor *w = y->src[0], *x = y->src[1], *routed = y->src[2];
    const int64_t experts = w->ne[2], used = routed->ne[0], pairs = used * routed->ne[1];
    const auto expert_of = [&](int64_t pair) {
        return *(const int32_t *)((const char *)routed->data + pair % used * routed->nb[0] +
                                  pair / used * routed->nb[1]);
    };
    std::vector<int64_t> &next = context.next_column;  // of each expert; first their counts
    next.assign(experts, 0);
    for (int64_t pair = 0; pair < pairs; pair++) {
        const int32_t expert = expert_of(pair);
        if (expert < 0 || expert >= experts) return false;
        next[expert]++;
    }
    context.x.resize(pairs);
    context.y.resize(pairs);
    int64_t first = 0;
    for (int64_t e = 0; e < experts; e++) {
        const int64_t count = next[e];
        next[e] = first;
        if (count == 0) continue;
        const int64_t set = (int64_t)context.column_sets.size();
        context.matrices.push_back({(const char *)w->data + e * w->nb[2], w->ne[1], w->nb[1], set,
                                    context.y.data() + first});
        context.column_sets.push_back({first, count});
        first += count;
    }
    for (int64_t pair = 0; pair < pairs; pair++) {
        const int64_t at = next[expert_of(pair)]++, i1 = pair % used, i2 = pair / used;
        context.x[at] = column<const float>(x, i1 % x->ne[1], i2, 0);
        context.y[at] = column<float>(y, i1, i2, 0);
    }
    return true;
}

enum ggml_status multiply(Context &context, const ggml_tensor *const *products, int count) {
    context.x.clear();
    context.y.clear();
    context.column_sets.clear();
    context.matrices.clear();
    const ggml_tensor *first = products[0];
    if (first->op == GGML_OP_MUL_MAT)
        add_products(context, products, count);
    else if (!add_experts(context, first))
        return GGML_STATUS_FAILED;
    const int type = first->src[0]->type;
    const int64_t k = first->src[0]->ne[0], sets = (int64_t)context.column_sets.size();
    const bool fine = fine_inputs && ggml_is_quantized((enum ggml_type)type);
    const int64_t columns = (int64_t)context.x.size() * (fine ? 2 : 1);
    if (!context.reserve(hearth_matmul_workspace_bytes(type, k, columns, sets, context.threads)))
        return GGML_STATUS_ALLOC_FAILED;
    const hearth_matmul_args args = {
        type,
        context.threads,
        k,
        context.x.data(),
        sets,
        context.column_sets.data(),
        (int64_t)context.matrices.size(),
        context.matrices.data(),
        context.workspace,
    };
    fine ? hearth_matmul_fine(&args) : hearth_matmul(&args);
    return GGML_STATUS_SUCCESS;
}

// Of a tensor lora_a in the place of which the adapters of adapters.h act: one row of NaN. Null for
// all others.
const hearth::AdapterPairs *pairs_of(const ggml_tensor *w) {
    constexpr char SIDE[] = ".lora_a";
    const size_t length = std::strlen(w->name), suffix = sizeof SIDE - 1;
    if (length <= suffix || std::strcmp(w->name + length - suffix, SIDE) != 0) return nullptr;
    const bool marked = w->type == GGML_TYPE_F32 && w->ne[1] == 1 && w->data != nullptr &&
                        std::isnan(*(const float *)w->data);
    return marked ? hearth::adapter_pairs(std::string(w->name, length - suffix)) : nullptr;
}

bool is_shrink(const ggml_tensor *y) {
    return y->op == GGML_OP_MUL_MAT && pairs_of(y->src[0]) != nullptr;
}

bool is_expand(const ggml_tensor *y) { return y->op == GGML_OP_MUL_MAT && is_shrink(y->src[1]); }

// llama.cpp's sequence of operations for an adapter: sum = base + scale · (lora_b (lora_a x)). All
// is done in the first one and in the sum.
bool is_scaled(const ggml_tensor *y) { return y->op == GGML_OP_SCALE && is_expand(y->src[0]); }

bool is_sum(const ggml_tensor *y) { return y->op == GGML_OP_ADD && is_scaled(y->src[1]); }

bool has_float_columns(const ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

bool supports_adapter(const ggml_tensor *y) {
    if (is_shrink(y)) return has_float_columns(y->src[1]);
    return is_expand(y) || is_scaled(y) ||
           (is_sum(y) && has_float_columns(y) && has_float_columns(y->src[0]) &&
            ggml_are_same_shape(y, y->src[0]));
}

// The first product of an adapter's, into context.hidden.
enum ggml_status shrink(Context &context, const ggml_tensor *y) {
    const hearth::AdapterPairs *pairs = pairs_of(y->src[0]);
    const ggml_tensor *x = y->src[1];
    if (context.shrunk != nullptr || !hearth::adapter_uses(*pairs, columns_of(x), context.uses))
        return GGML_STATUS_FAILED;
    context.shrunk = y;
    context.hidden_stride = 0;
    for (const hearth_lora_use &use : context.uses) {
        if (use.pair->in != x->ne[0]) return GGML_STATUS_FAILED;
        context.hidden_stride = std::max(context.hidden_stride, use.pair->rank);
    }
    const int64_t count = (int64_t)context.uses.size();
    context.hidden.resize(count * context.hidden_stride);
    context.x.clear();
    add_columns(context.x, x);
    hearth_lora_shrink(context.uses.data(), count, context.x.data(), context.hidden_stride,
                       context.hidden.data(), context.threads);
    return GGML_STATUS_SUCCESS;
}

// The sum, of what belongs to the last shrink().
enum ggml_status expand(Context &context, const ggml_tensor *y) {
    const ggml_tensor *base = y->src[0], *shrunk = y->src[1]->src[0]->src[1];
    if (context.shrunk != shrunk) return GGML_STATUS_FAILED;
    context.shrunk = nullptr;
    for (const hearth_lora_use &use : context.uses)
        if (use.pair->out != y->ne[0]) return GGML_STATUS_FAILED;
    context.x.clear();
    context.y.clear();
    add_columns(context.x, base);
    add_columns(context.y, y);
    hearth_lora_expand(context.uses.data(), (int64_t)context.uses.size(), context.hidden.data(),
                       context.hidden_stride, columns_of(y), y->ne[0], context.x.data(),
                       context.y.data(), context.threads);
    return GGML_STATUS_SUCCESS;
}

hearth_vectors vectors(const ggml_tensor *t) {
    return {t->data, t->nb[1], t->nb[2], t->type, t->ne[0]};
}

bool has_plain_rows(const ggml_tensor *t) {
    return t->ne[3] == 1 && t->nb[0] == ggml_type_size(t->type);
}

bool supports_attention(const ggml_tensor *out) {
    const ggml_tensor *q = out->src[0], *k = out->src[1], *v = out->src[2], *mask = out->src[3];
    const ggml_tensor *sinks = out->src[4];
    const bool fits = has_plain_rows(q) && has_plain_rows(k) && has_plain_rows(v) &&
                      has_plain_rows(out) && q->type == GGML_TYPE_F32 &&
                      out->type == GGML_TYPE_F32 && k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] &&
                      q->ne[0] == k->ne[0] && q->ne[2] % k->ne[2] == 0;
    const bool masked =
        mask == nullptr || (has_plain_rows(mask) && mask->type == GGML_TYPE_F16 &&
                            mask->ne[2] == 1 && mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1]);
    return fits && masked &&
           (sinks == nullptr || (has_plain_rows(sinks) && sinks->type == GGML_TYPE_F32)) &&
           hearth_attention_supports(k->type, v->type, k->ne[0], v->ne[0]);
}

enum ggml_status attend(Context &context, const ggml_tensor *out) {
    const ggml_tensor *q = out->src[0], *k = out->src[1], *mask = out->src[3], *sinks = out->src[4];
    hearth_attention_args args = {};
    args.q = vectors(q);
    args.k = vectors(k);
    args.v = vectors(out->src[2]);
    if (mask != nullptr) {
        args.mask = mask->data;
        args.mask_row_bytes = mask->nb[1];
    }
    if (sinks != nullptr) args.sinks = (const float *)sinks->data;
    args.out = (float *)out->data;
    args.out_head_bytes = out->nb[1];
    args.out_row_bytes = out->nb[2];
    args.rows = q->ne[1];
    args.cells = k->ne[1];
    args.heads = q->ne[2];
    args.heads_kv = k->ne[2];
    float params[3];  // ggml_flash_attn_ext() puts them there in this order
    std::memcpy(params, out->op_params, sizeof params);
    args.scale = params[2] != 0 ? params[0] / params[2] : params[0];
    args.max_bias = params[1];
    args.softcap = params[2];
    args.threads = context.threads;
    if (!context.reserve(hearth_attention_workspace_bytes(&args))) return GGML_STATUS_ALLOC_FAILED;
    args.workspace = context.workspace;
    hearth_attention(&args);
    return GGML_STATUS_SUCCESS;
}

bool is_product(enum ggml_op op) { return op == GGML_OP_MUL_MAT || op == GGML_OP_MUL_MAT_ID; }

// Whether two products have the same columns and formats, as those to queries, keys and values
// have.
bool share_columns(const ggml_tensor *a, const ggml_tensor *b) {
    return a->op == GGML_OP_MUL_MAT && b->op == GGML_OP_MUL_MAT && a->src[1] == b->src[1] &&
           !is_shrink(a) && !is_shrink(b) && a->src[0]->type == b->src[0]->type &&
           a->src[0]->op == GGML_OP_NONE && b->src[0]->op == GGML_OP_NONE;
}

enum ggml_status compute(ggml_backend_t backend, ggml_cgraph *graph) {
    Context &context = *(Context *)backend->context;
    std::vector<const ggml_tensor *> &nodes = context.nodes;
    nodes.clear();
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor *node = ggml_graph_node(graph, i);
        if (!is_view(node->op) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0)
            nodes.push_back(node);
    }
    for (size_t i = 0, next; i < nodes.size(); i = next) {
        ggml_status status = GGML_STATUS_FAILED;
        next = i + 1;
        if (is_shrink(nodes[i])) {
            status = shrink(context, nodes[i]);
        } else if (is_expand(nodes[i]) || is_scaled(nodes[i])) {
            status = GGML_STATUS_SUCCESS;
        } else if (is_sum(nodes[i])) {
            status = expand(context, nodes[i]);
        } else if (is_product(nodes[i]->op)) {
            while (next < nodes.size() && share_columns(nodes[i], nodes[next])) next++;
            status = multiply(context, &nodes[i], (int)(next - i));
        } else if (nodes[i]->op == GGML_OP_FLASH_ATTN_EXT) {
            status = attend(context, nodes[i]);
        }
        if (status != GGML_STATUS_SUCCESS) {
            context.shrunk = nullptr;
            return status;
        }
    }
    const bool whole = context.shrunk == nullptr;  // else another backend would do the sum
    context.shrunk = nullptr;
    return whole ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

void set_threads(ggml_backend_t backend, int threads) {
    ((Context *)backend->context)->threads = threads > 1 ? threads : 1;
}

const char *backend_name(ggml_backend_t) { return NAME; }

void free_backend(ggml_backend_t backend) {
    delete (Context *)backend->context;
    delete backend;
}

ggml_backend_t new_backend(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = {0x6f, 0x1d, 0x8a, 0x52, 0xc3, 0x47, 0x4e, 0x0b,
                             0x9d, 0x21, 0x75, 0xe8, 0x30, 0xb6, 0x5c, 0xfa};
    ggml_backend_i calls = {};
    calls.get_name = backend_name;
    calls.free = free_backend;
    calls.graph_compute = compute;
    return new ggml_backend{&guid, calls, device, new Context};
}

const char *device_name(ggml_backend_dev_t) { return NAME; }
const char *device_description(ggml_backend_dev_t) { return DESCRIPTION; }
void device_memory(ggml_backend_dev_t, size_t *free, size_t *total) { *free = *total = 0; }
enum ggml_backend_dev_type device_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

void device_props(ggml_backend_dev_t, ggml_backend_dev_props *props) {
    props->name = NAME;
    props->description = DESCRIPTION;
    props->memory_free = props->memory_total = 0;
    props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
    props->caps = {};
    props->caps.buffer_from_host_ptr = true;
    props->caps.mmap_support = true;
}

ggml_backend_buffer_type_t device_buffers(ggml_backend_dev_t) {
    return ggml_backend_cpu_buffer_type();
}

ggml_backend_buffer_t device_buffer_from_ptr(ggml_backend_dev_t, void *memory, size_t size,
                                             size_t) {
    return ggml_backend_cpu_buffer_from_ptr(memory, size);
}

bool device_supports_op(ggml_backend_dev_t, const ggml_tensor *op) {
    return is_view(op->op) || supports_adapter(op) ||
           (is_product(op->op) && supports_product(op)) ||
           (op->op == GGML_OP_FLASH_ATTN_EXT && supports_attention(op));
}

bool device_supports_buffers(ggml_backend_dev_t, ggml_backend_buffer_type_t buffers) {
    return ggml_backend_buft_is_host(buffers);
}

const char *registered_name(ggml_backend_reg_t) { return NAME; }
size_t device_count(ggml_backend_reg_t) { return 1; }

ggml_backend_dev_t device_of(ggml_backend_reg_t reg, size_t) {
    static ggml_backend_device device = [reg] {
        ggml_backend_device_i calls = {};
        calls.get_name = device_name;
        calls.get_description = device_description;
        calls.get_memory = device_memory;
        calls.get_type = device_type;
        calls.get_props = device_props;
        calls.init_backend = new_backend;
        calls.get_buffer_type = device_buffers;
        calls.buffer_from_host_ptr = device_buffer_from_ptr;
        calls.supports_op = device_supports_op;
        calls.supports_buft = device_supports_buffers;
        return ggml_backend_device{calls, reg, nullptr};
    }();
    return &device;
}

void *address_of(ggml_backend_reg_t, const char *name) {
    return std::strcmp(name, "ggml_backend_set_n_threads") == 0 ? (void *)set_threads : nullptr;
}

}  // namespace

// Whether inputs of products have 16 bits from now on, in all graphs of the process: see
// fine_inputs.h.
extern "C" void hearth_set_fine_inputs(bool fine) { fine_inputs = fine; }

// What ggml_backend_load() looks for. Null, which it takes for a failure, in another ggml.
extern "C" ggml_backend_reg_t ggml_backend_init(void) {
    if (std::string(ggml_version()) + " " + ggml_commit() != HEARTH_GGML) return nullptr;
    static ggml_backend_reg reg = {
        API_VERSION, {registered_name, device_count, device_of, address_of}, nullptr};
    return &reg;
}
