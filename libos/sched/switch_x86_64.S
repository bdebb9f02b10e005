/* void cl_switch(void **save_sp, void *to_sp): save this context's stack pointer to *save_sp, continue at to_sp.
 *
 * Saved are what the System V ABI lets a callee rely on: rbx, rbp, r12-r15, and the control bits of mxcsr and of the x87
 * control word, so that a rounding mode belongs to the uthread that set it. Loading the control words costs more than
 * everything else here, so they are loaded only where they differ; the status bits of mxcsr (0-5) do not count.
 *
 * It ends in pop and jmp: a ret would be predicted to return to where cl_switch was called last on this core, which is the
 * wrong place at every switch. For the same reason it cannot run under CET shadow stacks: this object carries no
 * .note.gnu.property, so the linker drops the shadow-stack mark and the loader leaves them off.
 *
 * Frame, from to_sp up: mxcsr (4 bytes), x87 control word (4), r15, r14, r13, r12, rbx, rbp, resume address. */
#if defined(__x86_64__)
    .text
    .globl cl_switch
    .hidden cl_switch
    .type cl_switch, @function
    .p2align 4
cl_switch:
    .cfi_startproc
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    pushq %r12
    .cfi_adjust_cfa_offset 8
    pushq %r13
    .cfi_adjust_cfa_offset 8
    pushq %r14
    .cfi_adjust_cfa_offset 8
    pushq %r15
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movl (%rsp), %eax
    movzwl 4(%rsp), %ecx
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    xorl (%rsp), %eax
    testl $0xffc0, %eax
    jne 2f
    cmpw 4(%rsp), %cx
    jne 3f
1:
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %r15
    .cfi_adjust_cfa_offset -8
    popq %r14
    .cfi_adjust_cfa_offset -8
    popq %r13
    .cfi_adjust_cfa_offset -8
    popq %r12
    .cfi_adjust_cfa_offset -8
    popq %rbx
    .cfi_adjust_cfa_offset -8
    popq %rbp
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    .cfi_register %rip, %rcx
    jmpq *%rcx
2:
    ldmxcsr (%rsp)
3:
    fldcw 4(%rsp)
    jmp 1b
    .cfi_endproc
    .size cl_switch, .-cl_switch
    .section .note.GNU-stack, "", @progbits
#endif
