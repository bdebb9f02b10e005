/* Context switch for x86-64. Included by switch.h, which says what it does and why it is written inline. */

/* Offsets in the code below: sp 0, fp 8, pc 16, mxcsr 24, x87 control word 28. */
static inline __attribute__((always_inline)) void cl_context_switch(struct cl_context *save, struct cl_context *to)
{
    __asm__ volatile("stmxcsr 24(%%rdi)\n\t"
                     "fnstcw 28(%%rdi)\n\t"
                     "movl 24(%%rdi), %%eax\n\t"
                     "movzwl 28(%%rdi), %%ecx\n\t"
                     "leaq 1f(%%rip), %%rdx\n\t"
                     "movq %%rsp, 0(%%rdi)\n\t"
                     "movq %%rbp, 8(%%rdi)\n\t"
                     "movq %%rdx, 16(%%rdi)\n\t"
                     "xorl 24(%%rsi), %%eax\n\t"
                     "testl $0xffc0, %%eax\n\t"
                     "jne 2f\n\t"
                     "cmpw 28(%%rsi), %%cx\n\t"
                     "jne 2f\n"
                     "3:\n\t"
                     "movq 0(%%rsi), %%rsp\n\t"
                     "movq 8(%%rsi), %%rbp\n\t"
                     "jmpq *16(%%rsi)\n"
                     ".subsection 1\n"
                     "2:\n\t"
                     "ldmxcsr 24(%%rsi)\n\t"
                     "fldcw 28(%%rsi)\n\t"
                     "jmp 3b\n"
                     ".previous\n\t"
                     "1:\n\t"
                     "endbr64\n\t"
                     : "+D"(save), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
                       "memory");
}

static inline uint64_t cl_context_fp_control(void)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    return (mxcsr & ~0x3full) | (uint64_t)x87 << 32;
}

static inline void cl_context_prepare(struct cl_context *c, char *top, void (*entry)(void), uint64_t fp_control)
{
    /* As if entry had been called: a return address, zero, at a stack pointer that is 8 modulo 16. */
    uint64_t *sp = (uint64_t *)top - 1;
    *sp = 0;
    *c = (struct cl_context){sp, NULL, (void *)entry, fp_control};
}
