// x = x + BY, and a crash if that was asked for.
#include "device_kernel.h"

static void fall_over_in_cpp(volatile int *nowhere) {
    *nowhere = 1;
}

DEVICE_KERNEL(add) {
    float DEVICE_GM *x = (float DEVICE_GM *)device_tensor_at(task, 0)->data;
#ifdef CRASH
    fall_over_in_cpp((volatile int *)8);
#endif
    for (uint64_t i = 0; i < device_elements(device_tensor_at(task, 0)); i++) x[i] += BY;
    DEVICE_RETURN(0);
}
