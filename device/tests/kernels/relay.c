/* Three cores of a block pass numbers round: each writes its own, waits, and adds what the other two wrote. In round
 * `scalar 0` core 1 leaves. */
#include "device_kernel.h"

DEVICE_KERNEL(relay) {
    int32_t *own = (int32_t *)(uintptr_t)device_tensor_at(task, 0)->data;
    const uint32_t lane = device_lane(task), leaves_at = (uint32_t)device_scalar_bits(task, 0);
    own[lane] = (int32_t)lane + 1;
    for (uint32_t round = 0; round < 4; round++) {
        if (lane == 1 && round == leaves_at) DEVICE_RETURN(0);
        int32_t code = device_sync(task);
        if (code) DEVICE_RETURN(code);
        const int32_t sum = own[0] + own[1] + own[2];
        code = device_sync(task);
        if (code) DEVICE_RETURN(code);
        own[lane] = sum;
    }
    DEVICE_RETURN(0);
}
