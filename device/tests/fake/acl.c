/* A vendor library that is none: it records every call with its argument, process and thread, works on host memory,
 * and can be told to refuse or to block a call.
 *
 * It is compiled by the tests, once per variant:
 *   WITHOUT_<call>  the symbol is missing      NULL_<call>  the symbol is there, its address is null
 *   MAJOR=n         the interface version      N_DEVICES=n  how many devices there are
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef MAJOR
#define MAJOR 1
#endif
#ifndef N_DEVICES
#define N_DEVICES 8
#endif
#define API __attribute__((visibility("default")))

/* ---- what the tests use ------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static struct { char call[48]; int after; int times; int code; } rules[16];
static int n_rules;
static __thread char recent[160];
/* A global that another copy of this library has too. */
API int shared_global = 0;

/* From the `after`-th next call on, `times` calls are refused with `code`. */
API void fake_refuse(const char *call, int after, int times, int code) {
    pthread_mutex_lock(&lock);
    snprintf(rules[n_rules].call, sizeof rules[0].call, "%s", call);
    rules[n_rules].after = after;
    rules[n_rules].times = times;
    rules[n_rules++].code = code;
    pthread_mutex_unlock(&lock);
}

/* Everything recorded so far: "call argument" lines. */
API const char *fake_log(void) { return log_text; }
API void fake_forget(void) { log_text[0] = 0; }

static int enter(const char *call, long argument) {
    int code = 0;
    pthread_mutex_lock(&lock);
    size_t len = strlen(log_text);
    snprintf(log_text + len, sizeof log_text - len, "%s %ld\n", call, argument);
    for (int i = 0; i < n_rules && !code; i++) {
        if (strcmp(rules[i].call, call)) continue;
        if (rules[i].after > 0) rules[i].after--;
        else if (rules[i].times > 0) { rules[i].times--; code = rules[i].code; }
    }
    pthread_mutex_unlock(&lock);
    if (code) snprintf(recent, sizeof recent, "EZ9999: %s was told to refuse", call);
    return code;
}

#define CALL(argument) int code = enter(__func__, (long)(argument)); if (code) return code

/* ---- a thread of its own, and a thread-local with a destructor ----------------------------------------------- */

static pthread_key_t key;
static int destroyed;
static void destroy(void *value) { (void)value; __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST); }
static void *background(void *none) { (void)none; for (;;) pause(); }
API int fake_destroyed(void) { return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST); }

static void once(void) {
    static int done;
    if (__atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST)) return;
    pthread_t thread;
    pthread_key_create(&key, destroy);
    pthread_create(&thread, NULL, background, NULL);
    pthread_detach(thread);
}

/* ---- the interface ------------------------------------------------------------------------------------------- */

#ifndef WITHOUT_aclrtGetVersion
API int aclrtGetVersion(int *major, int *minor, int *patch) {
    *major = MAJOR; *minor = 15; *patch = 0;
    return 0;
}
#endif

#ifndef WITHOUT_aclGetRecentErrMsg
API const char *aclGetRecentErrMsg(void) { return recent; }
#endif

API int aclInit(const char *config) { CALL(config != NULL); once(); return 0; }
API int aclrtGetDeviceCount(uint32_t *count) { CALL(0); *count = N_DEVICES; return 0; }
API int aclrtSetDevice(int32_t device) { CALL(device); pthread_setspecific(key, &key); return 0; }
API int aclrtResetDevice(int32_t device) { CALL(device); return 0; }

#ifndef WITHOUT_aclrtResetDeviceForce
API int aclrtResetDeviceForce(int32_t device) { CALL(device); return 0; }
#endif

API int aclrtMalloc(void **address, size_t bytes, int policy) {
    CALL(bytes);
    (void)policy;
    *address = malloc(bytes);
    return *address ? 0 : 207001;
}

#if defined(NULL_aclrtFree)
__asm__(".globl aclrtFree\n.set aclrtFree, 0\n");
#elif !defined(WITHOUT_aclrtFree)
API int aclrtFree(void *address) { CALL(0); free(address); return 0; }
#endif

API int aclrtMemcpy(void *to, size_t max, const void *from, size_t bytes, int kind) {
    CALL(kind);
    if (bytes > max) return 107000;
    memcpy(to, from, bytes);
    return 0;
}

API int aclrtGetMemInfo(int attribute, size_t *free_bytes, size_t *total) {
    CALL(attribute);
    *free_bytes = 60ul << 30; *total = 64ul << 30;
    return 0;
}

API int aclrtCreateStream(void **stream) { CALL(0); *stream = malloc(1); return 0; }
API int aclrtDestroyStream(void *stream) { CALL(0); free(stream); return 0; }
API int aclrtStreamQuery(void *stream, int *status) {
    (void)stream;
    int code = enter(__func__, 0);
    /* 1 means "not ready", which is no refusal. */
    *status = code == 1;
    return code == 1 ? 0 : code;
}

/* A kernel is a library for the host here: see the compiler of the tests. */
API int aclrtBinaryLoadFromFile(const char *path, void *options, void **binary) {
    CALL(options != NULL);
    *binary = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*binary) snprintf(recent, sizeof recent, "%s", dlerror());
    return *binary ? 0 : 107001;
}

API int aclrtBinaryGetFunction(void *binary, const char *name, void **function) {
    CALL(0);
    *function = dlsym(binary, name);
    return *function ? 0 : 107002;
}

struct task { uint32_t abi, n_tensors, n_scalars, n_blocks, block, reserved; };
struct holder { uint32_t address_offset, data_offset; };

API int aclrtLaunchKernelWithHostArgs(
    void *function, uint32_t n_blocks, void *stream, void *config, void *args, size_t bytes,
    struct holder *holders, size_t n_holders
) {
    CALL(n_blocks);
    (void)stream; (void)config; (void)n_holders;
    /* As the real one: the arguments are copied first, and the placeholder gets the address of the copy. */
    char *copy = malloc(bytes);
    memcpy(copy, args, bytes);
    struct task *task = (struct task *)(copy + holders[0].data_offset);
    *(void **)(copy + holders[0].address_offset) = task;
    int (*kernel)(struct task *) = (int (*)(struct task *))function;
    for (uint32_t block = 0; block < n_blocks; block++) {
        task->block = block;
        kernel(*(struct task **)copy);
    }
    free(copy);
    return 0;
}

/* ---- the driver ---------------------------------------------------------------------------------------------- */

API int halGetDeviceInfo(uint32_t card, int32_t module, int32_t info, int64_t *value) {
    CALL(card);
    (void)info;
    *value = module == 4 ? 20 : 40;
    return 0;
}
