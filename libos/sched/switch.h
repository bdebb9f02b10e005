/* The context switch: cl_switch in switch_<machine>.S, how a first context is laid out for it, and what the sanitizers
 * have to be told about it. */
#ifndef CORELANE_LIBOS_SCHED_SWITCH_H
#define CORELANE_LIBOS_SCHED_SWITCH_H

#include "../../runtime/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define CL_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define CL_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define CL_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define CL_TSAN 0
#endif

/* Save the callee-saved state on this stack and its address to *save_sp; load that at to_sp. Returns when somebody
 * switches back, perhaps on another kthread. */
void cl_switch(void **save_sp, void *to_sp);

/* The floating-point control state of the calling thread, in the form of the frame of cl_switch. */
static inline uint64_t cl_switch_fp_control(void)
{
#if defined(__x86_64__)
    uint32_t mxcsr;
    uint16_t x87;
    __asm__("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    return (mxcsr & ~0x3full) | (uint64_t)x87 << 32;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
#error "corelane has context switches for x86-64 and aarch64 only"
#endif
}

/* Lay out a context below `top` (16-byte aligned) that starts in `entry`, which must not return. The entry finds the stack
 * aligned as after a call, and a zero return address and frame pointer, where unwinders stop. */
static inline void *cl_switch_prepare(char *top, void (*entry)(void), uint64_t fp_control)
{
#if defined(__x86_64__)
    uint64_t *frame = (uint64_t *)(top - 16) - 7;
    frame[0] = fp_control;
    frame[6] = 0; /* rbp; the others may hold anything */
    frame[7] = (uint64_t)(uintptr_t)entry;
    frame[8] = 0; /* return address of entry: rsp % 16 == 8 there */
    return frame;
#else
    void cl_switch_start(void);
    uint64_t *frame = (uint64_t *)(top - 176);
    frame[0] = (uint64_t)(uintptr_t)entry; /* x19, where cl_switch_start goes */
    frame[10] = 0;                         /* x29 */
    frame[11] = (uint64_t)(uintptr_t)cl_switch_start;
    frame[20] = fp_control;
    return frame;
#endif
}

#endif
