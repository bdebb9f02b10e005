/* What every C file of corelane starts from: visibility, cache lines, atomics, branch hints.
 *
 * Atomics are the compiler's __atomic builtins on plain integer fields, so that cffi, numpy, numba and C++ see ordinary
 * struct members. Every use names its order; a comment at the use says why that order is enough. */
#ifndef CORELANE_RUNTIME_BASE_H
#define CORELANE_RUNTIME_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define CL_EXTERN_C_BEGIN extern "C" {
#define CL_EXTERN_C_END }
#define _Static_assert static_assert
#else
#define CL_EXTERN_C_BEGIN
#define CL_EXTERN_C_END
#endif

#define CL_API __attribute__((visibility("default")))
#define CL_HOT __attribute__((hot))
#define CL_NOINLINE __attribute__((noinline))
#define CL_ALWAYS_INLINE inline __attribute__((always_inline))
#define CL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CL_ALIGNED(n) __attribute__((aligned(n)))
#define CL_CACHELINE 64

#define cl_likely(x) __builtin_expect(!!(x), 1)
#define cl_unlikely(x) __builtin_expect(!!(x), 0)
#define cl_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define cl_min(a, b) ((a) < (b) ? (a) : (b))
#define cl_max(a, b) ((a) > (b) ? (a) : (b))

#define cl_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define cl_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define cl_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define cl_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define cl_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define cl_fence_seq_cst() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* Single-writer counter: the writer need not use a locked instruction, readers see whole values. */
#define cl_count(p, n) cl_store_relaxed((p), cl_load_relaxed(p) + (n))

CL_EXTERN_C_BEGIN

/* A copy of a struct of such counters, 64-bit words and nothing else, on any thread. Each is whole; together they may
 * be of different moments. */
static inline void cl_counts_copy(void *out, const void *counts, uint64_t bytes)
{
    const uint64_t *from = (const uint64_t *)counts;
    uint64_t *to = (uint64_t *)out;
    for (uint64_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = cl_load_relaxed(&from[i]);
}

/* Tell the core that this is a spin-wait loop. */
static inline void cl_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Bring a line near, to read it. */
#define cl_prefetch(p) __builtin_prefetch((p), 0, 3)

/* Bring a line near and take it from the other cores, to write it. Without -mprfchw gcc makes a plain prefetch of
 * __builtin_prefetch(p, 1) on x86-64, though every 64-bit processor executes prefetchw, at worst as a no-op. */
static inline void cl_prefetch_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

/* The first lines of the n > 0 bytes at p, to read or to write them: as many as a small frame has, as a rule one. Of
 * longer ones the hardware's own prefetcher fetches the rest. */
#define CL_PREFETCH_BYTES (4 * CL_CACHELINE)

static inline void cl_prefetch_span(const void *p, uint32_t n)
{
    cl_prefetch(p);
    for (uint32_t i = CL_CACHELINE; cl_unlikely(i < n) && i < CL_PREFETCH_BYTES; i += CL_CACHELINE)
        cl_prefetch((const char *)p + i);
}

static inline void cl_prefetch_span_write(const void *p, uint32_t n)
{
    cl_prefetch_write(p);
    for (uint32_t i = CL_CACHELINE; cl_unlikely(i < n) && i < CL_PREFETCH_BYTES; i += CL_CACHELINE)
        cl_prefetch_write((const char *)p + i);
}

/* Hint: another core reads this line next. It moves from our private caches to the shared one, where that core's load
 * finds it without asking us. A no-operation where the CPU does not know it (x86 reserves the encoding as one). */
static inline void cl_demote(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile(".byte 0x0f, 0x1c, 0x00" ::"a"(p) : "memory"); /* cldemote (%rax) */
#else
    (void)p;
#endif
}

CL_EXTERN_C_END
#endif
