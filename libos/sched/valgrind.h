/* Whether valgrind runs this process, and what it is told of stacks.
 *
 * Valgrind knows nothing of MADV_GUARD_INSTALL and crashes on such a guard; and it takes a switch to a stack that it
 * does not know for a huge frame. So under it guards are made by mprotect, and each stack is registered.
 *
 * A client request is a sequence of instructions that does nothing on a processor. Valgrind, which translates the code,
 * finds the sequence, reads six words (the request and its arguments) and leaves a result in a register. Outside of
 * valgrind the result is what was in that register before: 0. Source: valgrind's manual, "The Client Request
 * mechanism", and the sequences that its valgrind.h documents for each architecture.
 *
 * Tests: tests/libos/sched/test_valgrind.py. */
#ifndef CORELANE_LIBOS_SCHED_VALGRIND_H
#define CORELANE_LIBOS_SCHED_VALGRIND_H

#include <stdbool.h>
#include <stdint.h>

#define CL_VALGRIND_RUNNING 0x1001
#define CL_VALGRIND_STACK_REGISTER 0x1501 /* lowest and highest byte; the result names it */
#define CL_VALGRIND_STACK_DEREGISTER 0x1502

static inline uint64_t cl_valgrind_request(uint64_t request, uint64_t a, uint64_t b)
{
    volatile uint64_t words[6] = {request, a, b, 0, 0, 0};
#if defined(__x86_64__)
    uint64_t result = 0;
    __asm__ volatile("rolq $3, %%rdi\n\t"
                     "rolq $13, %%rdi\n\t"
                     "rolq $61, %%rdi\n\t"
                     "rolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "+d"(result)
                     : "a"(words)
                     : "cc", "memory");
    return result;
#elif defined(__aarch64__)
    register uint64_t result __asm__("x3") = 0;
    register volatile uint64_t *at __asm__("x4") = words;
    __asm__ volatile("ror x12, x12, #3\n\t"
                     "ror x12, x12, #13\n\t"
                     "ror x12, x12, #51\n\t"
                     "ror x12, x12, #61\n\t"
                     "orr x10, x10, x10"
                     : "+r"(result)
                     : "r"(at)
                     : "cc", "memory");
    return result;
#else
    return 0;
#endif
}

static inline bool cl_valgrind_runs(void)
{
    return cl_valgrind_request(CL_VALGRIND_RUNNING, 0, 0) != 0;
}

#endif
