// Devices that llama.cpp takes for GPUs, for tests on machines without one: buffers of their own
// in the machine's memory, and the processor's backend to compute. FAKE_GPUS says which there are,
// as NAME:MIB of memory, with a * after the number for an integrated one: "GPU0:512,GPU1:256*".
// FAKE_GPUS_ROWS: they are said to split matrices.
#include <ggml-cpu.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <sstream>
#include <string>

#include "ggml_interface.h"

struct ggml_backend_buffer_type_i {
    const char *(*get_name)(ggml_backend_buffer_type_t);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    void *get_max_size, *get_alloc_size, *is_host;
};

struct ggml_backend_buffer_type {
    ggml_backend_buffer_type_i iface;
    ggml_backend_dev_t device;
    void *context;
};

struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t);
    void *(*get_base)(ggml_backend_buffer_t);
    void *init_tensor;
    void (*memset_tensor)(ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t);
    void (*set_tensor)(ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t);
    void (*get_tensor)(ggml_backend_buffer_t, const ggml_tensor *, void *, size_t, size_t);
    void *set_tensor_2d, *get_tensor_2d, *cpy_tensor;
    void (*clear)(ggml_backend_buffer_t, uint8_t);
    void *reset;
};

struct ggml_backend_buffer {
    ggml_backend_buffer_i iface;
    ggml_backend_buffer_type_t buft;
    void *context;
    size_t size;
    enum ggml_backend_buffer_usage usage;
};

extern "C" ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t,
                                                          ggml_backend_buffer_i, void *, size_t);

namespace {

struct Gpu {
    std::string name;
    size_t bytes = 0;
    bool integrated = false;
    ggml_backend_device device = {};
    ggml_backend_buffer_type buffers = {};
};

Gpu &gpu_of(ggml_backend_dev_t device) { return *(Gpu *)device->context; }

const char *buffers_name(ggml_backend_buffer_type_t type) {
    return ((Gpu *)type->context)->name.c_str();
}

size_t alignment(ggml_backend_buffer_type_t) { return 64; }

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_i calls = {};
    calls.free_buffer = [](ggml_backend_buffer_t buffer) { std::free(buffer->context); };
    calls.get_base = [](ggml_backend_buffer_t buffer) { return buffer->context; };
    calls.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor *tensor, uint8_t value,
                             size_t offset, size_t bytes) {
        std::memset((char *)tensor->data + offset, value, bytes);
    };
    calls.set_tensor = [](ggml_backend_buffer_t, ggml_tensor *tensor, const void *data,
                          size_t offset, size_t bytes) {
        std::memcpy((char *)tensor->data + offset, data, bytes);
    };
    calls.get_tensor = [](ggml_backend_buffer_t, const ggml_tensor *tensor, void *data,
                          size_t offset, size_t bytes) {
        std::memcpy(data, (const char *)tensor->data + offset, bytes);
    };
    calls.clear = [](ggml_backend_buffer_t buffer, uint8_t value) {
        std::memset(buffer->context, value, buffer->size);
    };
    void *memory = std::aligned_alloc(64, (size + 63) / 64 * 64 + 64);
    return memory ? ggml_backend_buffer_init(type, calls, memory, size) : nullptr;
}

const char *device_name(ggml_backend_dev_t device) { return gpu_of(device).name.c_str(); }
const char *device_description(ggml_backend_dev_t) { return "Fake"; }

void device_memory(ggml_backend_dev_t device, size_t *free, size_t *total) {
    *free = *total = gpu_of(device).bytes;
}

enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
    return gpu_of(device).integrated ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_props(ggml_backend_dev_t device, ggml_backend_dev_props *props) {
    *props = {};
    props->name = device_name(device);
    props->description = device_description(device);
    device_memory(device, &props->memory_free, &props->memory_total);
    props->type = device_type(device);
}

ggml_backend_t new_backend(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    ggml_backend_i calls = {};
    calls.get_name = [](ggml_backend_t backend) { return device_name(backend->device); };
    calls.free = [](ggml_backend_t backend) {
        ggml_backend_free((ggml_backend_t)backend->context);
        delete backend;
    };
    calls.graph_compute = [](ggml_backend_t backend, ggml_cgraph *graph) {
        return ggml_backend_graph_compute((ggml_backend_t)backend->context, graph);
    };
    return new ggml_backend{&guid, calls, device, ggml_backend_cpu_init()};
}

bool device_supports_op(ggml_backend_dev_t, const ggml_tensor *op) {
    return ggml_backend_dev_supports_op(ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), op);
}

bool device_supports_buffers(ggml_backend_dev_t device, ggml_backend_buffer_type_t buffers) {
    return buffers == &gpu_of(device).buffers;
}

const char *registered_name(ggml_backend_reg_t) { return "Fake"; }

std::deque<Gpu> &gpus() {
    static std::deque<Gpu> found = [] {
        std::deque<Gpu> gpus;
        const char *given = std::getenv("FAKE_GPUS");
        std::istringstream text(given ? given : "");
        for (std::string one; std::getline(text, one, ',');) {
            const size_t colon = one.find(':');
            Gpu &gpu = gpus.emplace_back();
            gpu.name = one.substr(0, colon);
            gpu.bytes = std::stoull(one.substr(colon + 1)) << 20;
            gpu.integrated = one.back() == '*';
        }
        return gpus;
    }();
    return found;
}

size_t device_count(ggml_backend_reg_t) { return gpus().size(); }

ggml_backend_dev_t device_of(ggml_backend_reg_t reg, size_t number) {
    Gpu &gpu = gpus()[number];
    ggml_backend_device_i calls = {};
    calls.get_name = device_name;
    calls.get_description = device_description;
    calls.get_memory = device_memory;
    calls.get_type = device_type;
    calls.get_props = device_props;
    calls.init_backend = new_backend;
    calls.get_buffer_type = [](ggml_backend_dev_t device) { return &gpu_of(device).buffers; };
    calls.supports_op = device_supports_op;
    calls.supports_buft = device_supports_buffers;
    gpu.device = {calls, reg, &gpu};
    gpu.buffers = {{buffers_name, allocate, alignment, nullptr, nullptr, nullptr}, &gpu.device, &gpu};
    return &gpu.device;
}

void *address_of(ggml_backend_reg_t, const char *name) {
    static int any;
    const bool rows = std::strcmp(name, "ggml_backend_split_buffer_type") == 0;
    return rows && std::getenv("FAKE_GPUS_ROWS") ? &any : nullptr;
}

}  // namespace

extern "C" ggml_backend_reg_t ggml_backend_init(void) {
    static ggml_backend_reg reg = {
        API_VERSION, {registered_name, device_count, device_of, address_of}, nullptr};
    return &reg;
}
