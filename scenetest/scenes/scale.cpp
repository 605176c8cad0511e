#include "device_kernel.h"

DEVICE_KERNEL(scale) {
    const float DEVICE_GM *x = (const float DEVICE_GM *)device_tensor_at(task, 0)->data;
    float DEVICE_GM *y = (float DEVICE_GM *)device_tensor_at(task, 1)->data;
    float by = device_scalar_f32(task, 0);
    uint64_t first, end;
    device_share(task, device_elements(device_tensor_at(task, 1)), &first, &end);
    for (uint64_t i = first; i < end; i++) y[i] = by * x[i];
    DEVICE_RETURN(0);
}
