/* The kernels of the conformance suite; which one this is comes from the command line. */
#include "device_kernel.h"

#define ZIP(name, expression)                                                    \
    DEVICE_KERNEL(name) {                                                        \
        const float *x = (const float *)device_tensor_at(task, 0)->data;         \
        const float *y = (const float *)device_tensor_at(task, 1)->data;         \
        float *z = (float *)device_tensor_at(task, 2)->data;                     \
        uint64_t n = device_elements(device_tensor_at(task, 2));                 \
        for (uint64_t i = 0; i < n; i++) z[i] = expression;                      \
        DEVICE_RETURN(0);                                                        \
    }

ZIP(add, x[i] + y[i])
ZIP(sub, x[i] - y[i])
ZIP(mul, x[i] * y[i])

DEVICE_KERNEL(scale) {
    const device_tensor *view = device_tensor_at(task, 0);
    float *x = (float *)view->data, by = device_scalar_f32(task, 0);
    for (uint64_t i = 0; i < device_elements(view); i++) x[i] *= by;
    DEVICE_RETURN(0);
}
