/* The timing wheel of a kthread: see corelane/libos/wheel.h. Part of the scheduler's structures. */
#ifndef CORELANE_LIBOS_SCHED_WHEEL_H
#define CORELANE_LIBOS_SCHED_WHEEL_H

#include <corelane/libos/spin.h>
#include <corelane/libos/timer.h>
#include <corelane/libos/wheel.h>

#define CL_WHEEL_LEVELS 4
#define CL_WHEEL_BITS 6 /* of a level's digit of the tick */
#define CL_WHEEL_SLOTS (1u << CL_WHEEL_BITS)
#define CL_WHEEL_TICK_BITS 14
_Static_assert(1 << CL_WHEEL_TICK_BITS == CL_ALARM_SLOT_NS, "a tick is a lowest slot");

/* A tick is a number of CL_WHEEL_LEVELS digits. An alarm lies at the level of the highest digit in which its tick
 * differs from the wheel's, in the slot of that digit; if it differs above them, beyond. So whatever lies at a lower
 * level comes before all that lies at a higher one. When the wheel comes to a slot of a higher level or to what is
 * beyond, it deals all of it out anew before it goes on. Everything is guarded by the lock, but for `calling`. */
struct cl_wheel {
    struct cl_spin lock;
    uint32_t n;       /* alarms in it */
    uint64_t tick;    /* all before it are over */
    uint64_t wake_ns; /* for when the timer is armed; CL_NEVER: it is not */
    struct cl_timer timer;
    uint64_t filled[CL_WHEEL_LEVELS]; /* bit s: slot s is not empty */
    struct cl_alarm *slots[CL_WHEEL_LEVELS][CL_WHEEL_SLOTS];
    struct cl_alarm *beyond[2]; /* to be dealt out when the number above the digits is even, odd */
    /* The alarm inside whose callback this kthread is, of whatever wheel. Writer: the kthread; readers: cl_alarm_remove
     * (acquire). */
    struct cl_alarm *calling;
};

struct cl_kthread;
void cl_wheel_init(struct cl_kthread *k);
/* The wheel's timer's callback. */
void cl_wheel_run(struct cl_timer *timer, void *arg);

#endif
