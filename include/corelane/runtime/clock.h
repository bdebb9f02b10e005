/* Time. Hot paths stamp with the processor's counter (cl_tsc) and convert later by one multiplication.
 *
 * Stamps are raw counter values and are never rewritten: there is one time domain, which only goes forward. A cl_clock
 * is measured once and constant from then on; it gives nanoseconds of CLOCK_MONOTONIC. What other clocks say (wall
 * time, a PTP master, another machine) is a cl_timeline beside it: an append-only list of offsets, each valid from a
 * stamp on. A correction, also one backwards, appends an offset; stamps taken before keep their meaning, intervals
 * never change, and a reader who remembers the version that he used gets the same answer again.
 *
 * The counter is rdtsc or cntvct_el0. Where it cannot serve (the processor does not promise a constant rate, the kernel
 * took it off its list, another architecture, CORELANE_CLOCK=monotonic in the environment), cl_tsc returns nanoseconds
 * of CLOCK_MONOTONIC_RAW through the vDSO; everything else stays the same.
 *
 * What lies below an application takes its time from the clock that it is given, by cl_clock_stamp: a NIC from whoever
 * made it, a runtime from its NIC. A virtual clock (cl_clock_virtual) stands still until its owner moves it, so that a
 * test runs minutes in milliseconds and each run of a seed is the same.
 *
 * Tests: tests/runtime/test_clock.py. */
#ifndef CORELANE_RUNTIME_CLOCK_H
#define CORELANE_RUNTIME_CLOCK_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_CLOCK_NS_SHIFT 48    /* binary places of ns_per_tick: 1e-14 relative, and room for a 1 MHz counter */
#define CL_CLOCK_TICKS_SHIFT 58 /* binary places of ticks_per_ns: room for a 32 GHz counter */
#define CL_TIMELINE_STEPS 256   /* corrections that a timeline can hold */

/* Where a clock's rate comes from. */
#define CL_CLOCK_MEASURED 1  /* counter against CLOCK_MONOTONIC over the calibration window */
#define CL_CLOCK_KERNEL 2    /* the kernel's own conversion factor, confirmed by that measurement */
#define CL_CLOCK_ARCH 3      /* the architecture states the frequency (cntfrq_el0) */
#define CL_CLOCK_MONOTONIC 4 /* no usable counter: ticks are nanoseconds */
#define CL_CLOCK_VIRTUAL 5   /* its owner moves it: ticks are nanoseconds */

/* One calibration. Constant after cl_clock_calibrate, so readers need no order. */
struct cl_clock {
    uint64_t base_tsc;      /* a stamp ... */
    int64_t base_ns;        /* ... and CLOCK_MONOTONIC then */
    uint64_t ns_per_tick;   /* fixed point, CL_CLOCK_NS_SHIFT */
    uint64_t ticks_per_ns;  /* fixed point, CL_CLOCK_TICKS_SHIFT */
    uint64_t hz;            /* counter frequency, rounded */
    uint32_t error_ppb;     /* bound on the rate's error against CLOCK_MONOTONIC over the window measured */
    uint32_t base_error_ns; /* bound on the error of base_ns */
    uint32_t source;        /* CL_CLOCK_... */
    uint32_t window_us;     /* how long calibration measured */
    const uint64_t *word;   /* NULL: its stamps are those of cl_tsc; else a virtual clock's, which stand here */
};

/* One correction: from stamp `from_tsc` on, that clock = CLOCK_MONOTONIC + offset_ns. */
struct cl_timeline_step {
    uint64_t from_tsc;
    int64_t offset_ns;
};

/* Append-only corrections. One writer at a time; readers anywhere. A version is a count of steps; version 0 has offset
 * 0. */
struct cl_timeline {
    uint32_t n; /* writer: the one that steps (release, after the step); readers: acquire */
    uint32_t pad;
    struct cl_timeline_step steps[CL_TIMELINE_STEPS];
};

/* Measure a clock. Takes 2 to 10 ms, mostly asleep. -errno only if CLOCK_MONOTONIC cannot be read. */
CL_API int cl_clock_calibrate(struct cl_clock *out);
/* A stamp, and what CLOCK_MONOTONIC said then, give or take some 20 ns: the tightest of several readings. NTP steers
 * CLOCK_MONOTONIC and a clock's rate is measured once, so an old clock is off by its age times some millionths: who
 * compares stamps with times of the kernel takes pairs as he goes. -errno only if CLOCK_MONOTONIC cannot be read. */
CL_API int cl_clock_pair(uint64_t *tsc, int64_t *ns);
/* The process's clock, calibrated at the first call (thread-safe); never NULL. */
CL_API const struct cl_clock *cl_clock_default(void);
/* A virtual clock: a stamp is what *now_ns holds, and so is the time, in ns. The word is the caller's, who lets it only
 * grow and keeps it as long as the clock; it begins above 0, for a stamp of 0 means "never" in many places. Who reads
 * the clock on another thread than the one that moves it sees some value of the past. */
CL_API void cl_clock_virtual(struct cl_clock *out, const uint64_t *now_ns);
/* A clock from a known rate, for tests and for another process's counter. -EINVAL if hz is 0 or above 32 GHz. */
CL_API int cl_clock_from_hz(struct cl_clock *out, uint64_t hz, uint64_t base_tsc, int64_t base_ns);

/* The inline functions below, for bindings. */
CL_API uint64_t cl_tsc_read(void);
CL_API bool cl_tsc_is_fallback(void);
CL_API int64_t cl_clock_now_ns(const struct cl_clock *clock);
CL_API int64_t cl_clock_tsc_to_ns(const struct cl_clock *clock, uint64_t tsc);
CL_API uint64_t cl_clock_ns_to_tsc(const struct cl_clock *clock, int64_t ns);
CL_API int64_t cl_clock_ticks_to_ns(const struct cl_clock *clock, int64_t ticks);
CL_API int64_t cl_clock_ns_to_ticks(const struct cl_clock *clock, int64_t ns);

/* Append a correction; returns the new version, -EINVAL if from_tsc lies before the last one's, -ENOSPC if full. */
CL_API int cl_timeline_step(struct cl_timeline *t, uint64_t from_tsc, int64_t offset_ns);
/* The corrected time of a stamp, in the light of the first `version` corrections (UINT32_MAX: of all). */
CL_API int64_t cl_timeline_ns(const struct cl_timeline *t, const struct cl_clock *clock, uint64_t tsc,
                              uint32_t version);
// cffi: end
_Static_assert(sizeof(struct cl_clock) <= 64, "a clock fits a cache line");

/* 1 where the counter cannot serve. Set before main by a constructor, constant from then on. */
extern CL_API uint32_t cl_tsc_fallback;

/* CLOCK_MONOTONIC_RAW. Not inline: this header asks for no feature macro of the C library. */
CL_API uint64_t cl_monotonic_raw_ns(void);

/* A stamp. Not ordered against the loads and stores around it: at most some ten ns early or late. */
static inline uint64_t cl_tsc(void)
{
#if defined(__x86_64__)
    if (cl_likely(!cl_tsc_fallback))
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    if (cl_likely(!cl_tsc_fallback)) {
        uint64_t t;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
        return t;
    }
#endif
    return cl_monotonic_raw_ns();
}

/* A stamp of a clock, by what a user keeps of it: its `word`. On a hot path that word is a field beside what is used
 * anyway, so that a stamp costs one branch more than cl_tsc. */
static inline uint64_t cl_stamp(const uint64_t *word)
{
    return cl_likely(!word) ? cl_tsc() : cl_load_relaxed(word); /* relaxed: time orders nothing */
}

static inline uint64_t cl_clock_stamp(const struct cl_clock *c)
{
    return cl_stamp(c->word);
}

/* A stamp taken after everything before it in program order was done: for measuring a piece of code. */
static inline uint64_t cl_tsc_ordered(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lfence" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
    return cl_tsc();
}

__extension__ typedef __int128 cl_int128; /* not ISO C, and no compiler is to say so */

/* Length of an interval; negative intervals too. */
static inline int64_t cl_ticks_to_ns(const struct cl_clock *c, int64_t ticks)
{
    return (int64_t)(((cl_int128)ticks * (int64_t)c->ns_per_tick) >> CL_CLOCK_NS_SHIFT);
}

static inline int64_t cl_ns_to_ticks(const struct cl_clock *c, int64_t ns)
{
    return (int64_t)(((cl_int128)ns * (int64_t)c->ticks_per_ns) >> CL_CLOCK_TICKS_SHIFT);
}

/* CLOCK_MONOTONIC at a stamp, also one before the calibration. */
static inline int64_t cl_tsc_to_ns(const struct cl_clock *c, uint64_t tsc)
{
    return c->base_ns + cl_ticks_to_ns(c, (int64_t)(tsc - c->base_tsc));
}

static inline uint64_t cl_ns_to_tsc(const struct cl_clock *c, int64_t ns)
{
    return c->base_tsc + (uint64_t)cl_ns_to_ticks(c, ns - c->base_ns);
}

/* The clock's time: of a virtual one what its word holds. */
static inline int64_t cl_clock_ns(const struct cl_clock *c)
{
    return cl_tsc_to_ns(c, cl_clock_stamp(c));
}

CL_EXTERN_C_END
#endif
