/* c = a + b * s, this block's share of it. */
#include "device_kernel.h"

_Static_assert(sizeof(device_task) == 40, "header");
_Static_assert(sizeof(device_tensor) == 96, "tensor");
_Static_assert(__builtin_offsetof(device_tensor, shape) == 8, "shape");
_Static_assert(__builtin_offsetof(device_tensor, strides) == 48, "strides");
_Static_assert(__builtin_offsetof(device_tensor, rank) == 88, "rank");

DEVICE_KERNEL(add) {
    const float *a = (const float *)device_tensor_at(task, 0)->data;
    const float *b = (const float *)device_tensor_at(task, 1)->data;
    float *c = (float *)device_tensor_at(task, 2)->data;
    float s = device_scalar_f32(task, 0);
    uint64_t first, end;
    device_share(task, device_elements(device_tensor_at(task, 2)), &first, &end);
    for (uint64_t i = first; i < end; i++) c[i] = a[i] + b[i] * s;
    DEVICE_RETURN(0);
}
