// A comparison program: what a task with `depend` costs in libgomp.
//
// `libgomp SHAPE TASKS` prints nanoseconds per task: submit, schedule, an empty body, complete. Two threads; the
// first round only warms up. Built by the bench `peers`, by nothing else.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFERS 64

// Never read or written: only the addresses count. One for each independent task.
static char *cells;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void chain(long n)
{
    for (long i = 0; i < n; i++) {
#pragma omp task depend(inout : cells[0])
        { __asm__ volatile(""); }
    }
}

static void independent(long n)
{
    for (long i = 0; i < n; i++) {
#pragma omp task depend(out : cells[i])
        { __asm__ volatile(""); }
    }
}

static void in_in_out(long n)
{
    for (long i = 0; i < n; i++) {
        long a = i % BUFFERS, b = (7 * i + 1) % BUFFERS, c = (13 * i + 6) % BUFFERS;
#pragma omp task depend(in : cells[a], cells[b]) depend(out : cells[c])
        { __asm__ volatile(""); }
    }
}

static double per_task(void (*shape)(long), long n)
{
    double elapsed = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        double start = now_ns();
        shape(n);
#pragma omp taskwait
        elapsed = now_ns() - start;
    }
    return elapsed / n;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long n = atol(argv[2]);
    void (*shape)(long) = !strcmp(argv[1], "chain")         ? chain
                          : !strcmp(argv[1], "independent") ? independent
                          : !strcmp(argv[1], "in_in_out")   ? in_in_out
                                                            : NULL;
    if (!shape || n < BUFFERS)
        return 2;
    cells = malloc(n);
    per_task(shape, n);
    printf("%.2f\n", per_task(shape, n));
    return 0;
}
