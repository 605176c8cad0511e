// Writes what it was told about its task into its output, so that a test can compare.
#include "device_kernel.h"

DEVICE_KERNEL(describe) {
    const device_tensor *view = device_tensor_at(task, 0);
    uint64_t *out = reinterpret_cast<uint64_t *>(device_tensor_at(task, 1)->data);
    *out++ = view->dtype == DEVICE_BF16;
    *out++ = view->rank;
    for (int dim = 0; dim < 2; dim++) *out++ = view->shape[dim];
    for (int dim = 0; dim < 2; dim++) *out++ = view->strides[dim];
    *out++ = view->data - device_scalar_bits(task, 0);
    *out++ = device_scalar_f64(task, 1) == -0.25;
    *out++ = task->n_blocks;
    DEVICE_RETURN(0);
}
