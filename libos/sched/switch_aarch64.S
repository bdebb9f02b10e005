/* void cl_switch(void **save_sp, void *to_sp): as in switch_x86_64.S.
 *
 * Saved are what AAPCS64 lets a callee rely on: x19-x28, the frame pointer x29, the link register x30 (where the context
 * goes on), d8-d15, and fpcr. Ends in br, not ret, for the sake of the return predictor; x16 is the register that
 * branch-target checking allows for it.
 *
 * Frame, from to_sp up: x19..x28, x29, x30 (96 bytes), d8..d15 (64), fpcr, padding (16). */
#if defined(__aarch64__)
    .text
    .globl cl_switch
    .hidden cl_switch
    .type cl_switch, %function
    .p2align 4
cl_switch:
    .cfi_startproc
    sub sp, sp, #176
    .cfi_adjust_cfa_offset 176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mrs x9, fpcr
    str x9, [sp, #160]
    mov x10, sp
    str x10, [x0]
    mov sp, x1
    ldr x11, [sp, #160]
    cmp x9, x11
    b.ne 2f
1:
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    .cfi_adjust_cfa_offset -176
    mov x16, x30
    br x16
2:
    msr fpcr, x11
    b 1b
    .cfi_endproc
    .size cl_switch, .-cl_switch

/* Where a fresh context starts: x19 is its entry; a zero return address stops unwinders. */
    .globl cl_switch_start
    .hidden cl_switch_start
    .type cl_switch_start, %function
    .p2align 4
cl_switch_start:
    .cfi_startproc
    .cfi_undefined x30
    mov x30, xzr
    mov x16, x19
    br x16
    .cfi_endproc
    .size cl_switch_start, .-cl_switch_start
    .section .note.GNU-stack, "", %progbits
#endif
