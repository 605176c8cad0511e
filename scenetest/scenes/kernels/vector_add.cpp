// z = x + y, this block's share.
#include "device_kernel.h"

DEVICE_KERNEL(add) {
    const float DEVICE_GM *x = (const float DEVICE_GM *)device_tensor_at(task, 0)->data;
    const float DEVICE_GM *y = (const float DEVICE_GM *)device_tensor_at(task, 1)->data;
    float DEVICE_GM *z = (float DEVICE_GM *)device_tensor_at(task, 2)->data;
    uint64_t first, end;
    device_share(task, device_elements(device_tensor_at(task, 2)), &first, &end);
    for (uint64_t i = first; i < end; i++) z[i] = x[i] + y[i];
    DEVICE_RETURN(0);
}
