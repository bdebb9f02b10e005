/* Context switch for aarch64. Included by switch.h, which says what it does and why it is written inline. */

/* Offsets in the code below: sp 0, fp 8, pc 16, fpcr 24. hint #36 is "bti j", for machines that check branch
 * targets. */
static inline __attribute__((always_inline)) void cl_context_switch(struct cl_context *save, struct cl_context *to)
{
    register struct cl_context *x0 __asm__("x0") = save;
    register struct cl_context *x1 __asm__("x1") = to;
    __asm__ volatile("mrs x9, fpcr\n\t"
                     "adr x10, 1f\n\t"
                     "mov x11, sp\n\t"
                     "stp x11, x29, [x0, #0]\n\t"
                     "stp x10, x9, [x0, #16]\n\t"
                     "ldp x11, x29, [x1, #0]\n\t"
                     "ldp x16, x12, [x1, #16]\n\t"
                     "mov sp, x11\n\t"
                     "mov x30, xzr\n\t" /* where a fresh context's unwinding ends; dead in a resumed one */
                     "cmp x9, x12\n\t"
                     "b.eq 2f\n\t"
                     "msr fpcr, x12\n"
                     "2:\n\t"
                     "br x16\n"
                     "1:\n\t"
                     "hint #36\n\t"
                     : "+r"(x0), "+r"(x1)
                     :
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                       "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1",
                       "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",
                       "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
                       "v31", "cc", "memory");
}

static inline uint64_t cl_context_fp_control(void)
{
    uint64_t fpcr;
    __asm__("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static inline void cl_context_prepare(struct cl_context *c, char *top, void (*entry)(void), uint64_t fp_control)
{
    *c = (struct cl_context){top, NULL, (void *)entry, fp_control};
}
