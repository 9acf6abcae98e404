// ggml's interface for backends, declared again: llama-cpp-python does not install its
// ggml-backend-impl.h. The loader compares API_VERSION, which stays when members are inserted.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

constexpr int API_VERSION = 2;

struct ggml_backend_i {
    const char *(*get_name)(ggml_backend_t);
    void (*free)(ggml_backend_t);
    void *set_tensor_async, *get_tensor_async, *set_tensor_2d_async, *get_tensor_2d_async;
    void *cpy_tensor_async, *synchronize;
    void *graph_plan_create, *graph_plan_free, *graph_plan_update, *graph_plan_compute;
    enum ggml_status (*graph_compute)(ggml_backend_t, struct ggml_cgraph *);
    void *event_record, *event_wait, *graph_optimize;
};

struct ggml_backend {
    ggml_guid_t guid;
    ggml_backend_i iface;
    ggml_backend_dev_t device;
    void *context;
};

struct ggml_backend_device_i {
    const char *(*get_name)(ggml_backend_dev_t);
    const char *(*get_description)(ggml_backend_dev_t);
    void (*get_memory)(ggml_backend_dev_t, size_t *, size_t *);
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
    void (*get_props)(ggml_backend_dev_t, struct ggml_backend_dev_props *);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char *);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
    void *get_host_buffer_type;
    ggml_backend_buffer_t (*buffer_from_host_ptr)(ggml_backend_dev_t, void *, size_t, size_t);
    bool (*supports_op)(ggml_backend_dev_t, const struct ggml_tensor *);
    bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
    void *offload_op, *event_new, *event_free, *event_synchronize;
};

struct ggml_backend_device {
    ggml_backend_device_i iface;
    ggml_backend_reg_t reg;
    void *context;
};

struct ggml_backend_reg_i {
    const char *(*get_name)(ggml_backend_reg_t);
    size_t (*get_device_count)(ggml_backend_reg_t);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t);
    void *(*get_proc_address)(ggml_backend_reg_t, const char *);
};

struct ggml_backend_reg {
    int api_version;
    ggml_backend_reg_i iface;
    void *context;
};
