/* The C kernels of the `probes` benchmark, compiled while it runs, once for each way of probing (bench/probes/c.py):
 *
 *     plain       -DCL_BENCH_PROBE=        nothing
 *     by hand     CL_PROBE() where this file says CL_BENCH_PROBE(), about every microsecond or more often
 *     trace-pc    the compiler's callback at every basic block (corelane/libos/trace_pc.h)
 *
 * They compute what the Python functions of the same names in bench/probes/kernels.py do. A probe is in an outer loop
 * wherever the inner one is short, so the second way is also the bound for what one look a turn of that loop costs. */
#ifndef CORELANE_BENCH_PROBES_LOOPS_H
#define CORELANE_BENCH_PROBES_LOOPS_H

#include <corelane/libos/probe.h>

#ifndef CL_BENCH_PROBE
#define CL_BENCH_PROBE() CL_PROBE()
#endif

/* Where probes look from now on. */
CL_API void watch(const uint64_t *word)
{
    cl_probe_word_self = word;
}

/* n x n, row by row. */
CL_API void matmul(const double *restrict a, const double *restrict b, double *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double x = a[i * n + k];
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += x * b[k * n + j];
            CL_BENCH_PROBE();
        }
}

/* One block of 32 x 32, or less at the edges. */
static void block(const double *restrict a, const double *restrict b, double *restrict c, int64_t n, const int64_t *at)
{
    int64_t i1 = cl_min(at[0] + 32, n), k1 = cl_min(at[1] + 32, n), j1 = cl_min(at[2] + 32, n);
    for (int64_t i = at[0]; i < i1; i++)
        for (int64_t k = at[1]; k < k1; k++) {
            double x = a[i * n + k];
            for (int64_t j = at[2]; j < j1; j++)
                c[i * n + j] += x * b[k * n + j];
            CL_BENCH_PROBE();
        }
}

CL_API void matmul_blocked(const double *restrict a, const double *restrict b, double *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i += 32)
        for (int64_t k = 0; k < n; k += 32)
            for (int64_t j = 0; j < n; j += 32) {
                int64_t at[] = {i, k, j};
                block(a, b, c, n, at);
            }
}

CL_API void stencil(const double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 1; i < n - 1; i++) {
        const double *row = x + i * n;
        for (int64_t j = 1; j < n - 1; j++)
            y[i * n + j] = 0.5 * row[j] + 0.125 * (row[j - n] + row[j + n] + row[j - 1] + row[j + 1]);
        CL_BENCH_PROBE();
    }
}

/* FNV-1a: strips of 512 bytes, half a microsecond. */
CL_API uint64_t fnv(const uint8_t *data, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325;
    for (int64_t at = 0; at < n;) {
        int64_t end = cl_min(at + 512, n);
        for (; at < end; at++)
            h = (h ^ data[at]) * 0x100000001b3;
        CL_BENCH_PROBE();
    }
    return h;
}

CL_API int64_t walk(const int64_t *key, const int64_t *left, const int64_t *right, const int64_t *wanted, int64_t n)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t node = 0; node >= 0;) {
            if (key[node] == wanted[i]) {
                found++;
                break;
            }
            node = wanted[i] < key[node] ? left[node] : right[node];
        }
        CL_BENCH_PROBE();
    }
    return found;
}

CL_API void spmv(const int64_t *start, const int64_t *column, const double *value, const double *x, double *y,
                 int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double s = 0.0;
        for (int64_t k = start[i]; k < start[i + 1]; k++)
            s += value[k] * x[column[k]];
        y[i] = s;
        CL_BENCH_PROBE();
    }
}

#endif
