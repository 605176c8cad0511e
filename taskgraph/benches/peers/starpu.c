// A comparison program: what a task costs in StarPU, which infers order from data handles.
//
// `starpu SHAPE TASKS` prints nanoseconds per task: submit, schedule, an empty body, complete. This thread submits,
// one CPU worker executes; the first round only warms up. Built by the bench `peers`, by nothing else.

#include <starpu.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFERS 64

static starpu_data_handle_t *handles;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void body(void *buffers[], void *arg)
{
    (void)buffers;
    (void)arg;
}

static struct starpu_codelet update = {.cpu_funcs = {body}, .nbuffers = 1, .modes = {STARPU_RW}};
static struct starpu_codelet overwrite = {.cpu_funcs = {body}, .nbuffers = 1, .modes = {STARPU_W}};
static struct starpu_codelet combine = {.cpu_funcs = {body}, .nbuffers = 3, .modes = {STARPU_R, STARPU_R, STARPU_W}};

static void submit(const char *shape, long i)
{
    struct starpu_task *task = starpu_task_create();
    if (!strcmp(shape, "chain")) {
        task->cl = &update;
        task->handles[0] = handles[0];
    } else if (!strcmp(shape, "independent")) {
        task->cl = &overwrite;
        task->handles[0] = handles[i];
    } else {
        task->cl = &combine;
        task->handles[0] = handles[i % BUFFERS];
        task->handles[1] = handles[(7 * i + 1) % BUFFERS];
        task->handles[2] = handles[(13 * i + 6) % BUFFERS];
    }
    if (starpu_task_submit(task) != 0)
        exit(3);
}

static double per_task(const char *shape, long n)
{
    double start = now_ns();
    for (long i = 0; i < n; i++)
        submit(shape, i);
    starpu_task_wait_for_all();
    return (now_ns() - start) / n;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long n = atol(argv[2]);
    if (n < BUFFERS || (strcmp(argv[1], "chain") && strcmp(argv[1], "independent") && strcmp(argv[1], "in_in_out")))
        return 2;
    struct starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = 1;
    conf.ncuda = 0;
    conf.nopencl = 0;
    if (starpu_init(&conf) != 0)
        return 3;
    long n_handles = strcmp(argv[1], "independent") ? BUFFERS : n;
    int *values = calloc(n_handles, sizeof *values);
    handles = calloc(n_handles, sizeof *handles);
    for (long i = 0; i < n_handles; i++)
        starpu_variable_data_register(&handles[i], STARPU_MAIN_RAM, (uintptr_t)&values[i], sizeof values[i]);
    per_task(argv[1], n);
    printf("%.2f\n", per_task(argv[1], n));
    for (long i = 0; i < n_handles; i++)
        starpu_data_unregister(handles[i]);
    starpu_shutdown();
    return 0;
}
