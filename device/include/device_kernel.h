/* What a kernel in C or C++ is given, on the simulator and on a chip alike.
 *
 * A kernel named `add` is the function
 *
 *     #include "device_kernel.h"
 *
 *     DEVICE_KERNEL(add) {
 *         const device_tensor DEVICE_GM *a = device_tensor_at(task, 0);
 *         ...
 *         DEVICE_RETURN(0);
 *     }
 *
 * It is called once per block, with `task` pointing at one contiguous block of memory: the header below, then the
 * tensors, then the scalars. 0 means success; any other code is reported as the kernel's failure (the simulator only:
 * a core of a chip has no way to return one).
 *
 * The layout is version DEVICE_KERNEL_ABI. The loader compares it with its own before the first call.
 */
#ifndef DEVICE_KERNEL_H
#define DEVICE_KERNEL_H

#include <stdint.h>

#define DEVICE_KERNEL_ABI 2u
#define DEVICE_RANK_MAX 5

#if defined(__CCE_AICORE__) || defined(DEVICE_ON_CHIP)
#define DEVICE_GM __gm__
#define DEVICE_FN __aicore__ static inline
#else
#define DEVICE_GM
#define DEVICE_FN static inline
#endif

/* A view of device memory. `data` is its first element; shape and strides count elements. */
typedef struct device_tensor {
    uint64_t data;
    uint64_t shape[DEVICE_RANK_MAX];
    uint64_t strides[DEVICE_RANK_MAX];
    uint32_t rank;
    uint32_t dtype;
} device_tensor;

/* The header of a task. */
typedef struct device_task {
    uint32_t abi;
    uint32_t n_tensors;
    uint32_t n_scalars;
    uint32_t n_blocks;
    uint32_t block; /* this block, on the simulator; device_block() works everywhere */
    uint32_t lane; /* this core of the block, on the simulator: 0 AIC, 1 and 2 AIV; device_lane() */
    uint64_t sync; /* on the simulator: what device_sync() calls, and with what; else 0 */
    uint64_t seat;
} device_task;

/* Codes of `dtype`. */
enum {
    DEVICE_F64 = 1, DEVICE_F32, DEVICE_F16, DEVICE_BF16, DEVICE_F8E4M3, DEVICE_F8E5M2,
    DEVICE_I8, DEVICE_I16, DEVICE_I32, DEVICE_I64, DEVICE_U8, DEVICE_U16, DEVICE_U32, DEVICE_U64,
    DEVICE_BOOL, DEVICE_I4, DEVICE_U4, DEVICE_F4E2M1
};

#ifdef __cplusplus
#define DEVICE_EXTERN_C extern "C"
#else
#define DEVICE_EXTERN_C
#endif

#if defined(__CCE_AICORE__) || defined(DEVICE_ON_CHIP)
#define DEVICE_KERNEL(name) DEVICE_EXTERN_C __global__ __aicore__ void name(__gm__ device_task *task)
#define DEVICE_RETURN(code) return
DEVICE_FN uint32_t device_block(const device_task DEVICE_GM *task) {
    (void)task;
    return (uint32_t)get_block_idx();
}
#else
#define DEVICE_EXPORT __attribute__((visibility("default")))
#define DEVICE_KERNEL(name) DEVICE_EXTERN_C DEVICE_EXPORT int32_t name(const device_task *task)
#define DEVICE_RETURN(code) return (code)
/* Read by the loader. Weak, so that every source of a kernel may include this header. */
DEVICE_EXTERN_C DEVICE_EXPORT __attribute__((weak)) uint32_t device_kernel_abi(void);
DEVICE_EXTERN_C __attribute__((weak)) uint32_t device_kernel_abi(void) { return DEVICE_KERNEL_ABI; }
DEVICE_FN uint32_t device_block(const device_task *task) { return task->block; }
/* A MIX kernel is called once for each of its cores, at the same time: each has a thread of the host. */
DEVICE_FN uint32_t device_lane(const device_task *task) { return task->lane; }
/* Waits for the other cores of a MIX block; what they wrote before is seen after it. 0, or a code to return at once: a
 * core of the block has ended, so it will never come. Does nothing on a kernel of one core. The simulator only: on a chip
 * the cores synchronize by the instructions of their architecture. */
DEVICE_FN int32_t device_sync(const device_task *task) {
    return ((int32_t (*)(uint64_t))(uintptr_t)task->sync)(task->seat);
}
#endif

/* The i-th tensor, in the order of the task's arguments. */
DEVICE_FN const device_tensor DEVICE_GM *device_tensor_at(const device_task DEVICE_GM *task, uint32_t i) {
    return (const device_tensor DEVICE_GM *)(task + 1) + i;
}

/* The 64 bits of the i-th scalar; smaller types stand in the low bits. */
DEVICE_FN uint64_t device_scalar_bits(const device_task DEVICE_GM *task, uint32_t i) {
    return ((const uint64_t DEVICE_GM *)device_tensor_at(task, task->n_tensors))[i];
}

DEVICE_FN float device_scalar_f32(const device_task DEVICE_GM *task, uint32_t i) {
    union { uint32_t bits; float value; } it;
    it.bits = (uint32_t)device_scalar_bits(task, i);
    return it.value;
}

DEVICE_FN double device_scalar_f64(const device_task DEVICE_GM *task, uint32_t i) {
    union { uint64_t bits; double value; } it;
    it.bits = device_scalar_bits(task, i);
    return it.value;
}

/* Number of elements of a tensor. */
DEVICE_FN uint64_t device_elements(const device_tensor DEVICE_GM *tensor) {
    uint64_t n = 1;
    for (uint32_t dim = 0; dim < tensor->rank; dim++) n *= tensor->shape[dim];
    return n;
}

/* This block's even share of n items: first item, and one past the last. */
DEVICE_FN void device_share(const device_task DEVICE_GM *task, uint64_t n, uint64_t *first, uint64_t *end) {
    uint64_t block = device_block(task), share = n / task->n_blocks, rest = n % task->n_blocks;
    *first = block * share + (block < rest ? block : rest);
    *end = *first + share + (block < rest);
}

#endif
