// Vector kernels of the examples.
#include "device_kernel.h"

// c = a + b, this block's share.
DEVICE_KERNEL(vector_add) {
    const float DEVICE_GM *a = (const float DEVICE_GM *)device_tensor_at(task, 0)->data;
    const float DEVICE_GM *b = (const float DEVICE_GM *)device_tensor_at(task, 1)->data;
    float DEVICE_GM *c = (float DEVICE_GM *)device_tensor_at(task, 2)->data;
    uint64_t first, end;
    device_share(task, device_elements(device_tensor_at(task, 2)), &first, &end);
    for (uint64_t i = first; i < end; i++) c[i] = a[i] + b[i];
    DEVICE_RETURN(0);
}

// x = x * s, this block's share.
DEVICE_KERNEL(vector_scale) {
    float DEVICE_GM *x = (float DEVICE_GM *)device_tensor_at(task, 0)->data;
    float s = device_scalar_f32(task, 0);
    uint64_t first, end;
    device_share(task, device_elements(device_tensor_at(task, 0)), &first, &end);
    for (uint64_t i = first; i < end; i++) x[i] *= s;
    DEVICE_RETURN(0);
}
