// A comparison program: what a task costs in Taskflow, which infers nothing: the edges are given.
//
// `taskflow SHAPE TASKS` prints nanoseconds per task: build the graph, run it once with empty bodies. One worker; the
// first round only warms up. Built by the bench `peers`, by nothing else.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <taskflow/taskflow.hpp>
#include <vector>

constexpr long BUFFERS = 64;

static void chain(tf::Taskflow &flow, long n)
{
    tf::Task last;
    for (long i = 0; i < n; i++) {
        tf::Task task = flow.emplace([] {});
        if (i > 0)
            last.precede(task);
        last = task;
    }
}

static void independent(tf::Taskflow &flow, long n)
{
    for (long i = 0; i < n; i++)
        flow.emplace([] {});
}

// The edges that a user would have to find: writer to readers, readers to the next writer.
static void in_in_out(tf::Taskflow &flow, long n)
{
    std::vector<tf::Task> writer(BUFFERS);
    std::vector<std::vector<tf::Task>> readers(BUFFERS);
    for (long i = 0; i < n; i++) {
        tf::Task task = flow.emplace([] {});
        for (long in : {i % BUFFERS, (7 * i + 1) % BUFFERS}) {
            if (!writer[in].empty())
                writer[in].precede(task);
            readers[in].push_back(task);
        }
        long out = (13 * i + 6) % BUFFERS;
        if (!writer[out].empty())
            writer[out].precede(task);
        for (tf::Task reader : readers[out])
            reader.precede(task);
        readers[out].clear();
        writer[out] = task;
    }
}

static double per_task(tf::Executor &executor, void (*shape)(tf::Taskflow &, long), long n)
{
    auto start = std::chrono::steady_clock::now();
    tf::Taskflow flow;
    shape(flow, n);
    executor.run(flow).wait();
    std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / n;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    std::string name = argv[1];
    long n = atol(argv[2]);
    auto shape = name == "chain" ? chain : name == "independent" ? independent : name == "in_in_out" ? in_in_out : nullptr;
    if (!shape || n < BUFFERS)
        return 2;
    tf::Executor executor(1);
    per_task(executor, shape, n);
    std::printf("%.2f\n", per_task(executor, shape, n));
}
