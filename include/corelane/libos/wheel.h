/* Alarms that cost nothing until they are due: a timing wheel per kthread, behind one timer (timer.h).
 *
 * For deadlines that nearly always move on before they come, as those of a connection. To move an alarm later is a
 * store; to cancel it is a store; nothing is linked or unlinked. The wheel finds an alarm where it was put first, sees
 * that its deadline is later by now, and puts it again (the lazy form of scheme 7 of Varghese and Lauck, SOSP 1987).
 * Four levels of 64 slots, the lowest of 2^14 ns (16.4 us); what is further away than 275 s waits beside them.
 *
 * An alarm is a member of an object of the caller, and whoever works on the object *holds* the alarm: one at a time, by
 * a lock or a queue of the caller. All calls below are the holder's. The wheel is not: it reads the deadline while the
 * holder may move it. So its callback is a hint, and the holder decides.
 * It is called on some kthread, in its loop, as a timer's (timer.h). Here it takes the object itself; it may also note
 * that there is something to do, and let the holder ask:
 *
 *   static void on_alarm(struct cl_alarm *alarm)
 *   {
 *       struct object *o = cl_container_of(alarm, struct object, alarm);
 *       cl_spin_lock(&o->lock);
 *       if (cl_alarm_due(&o->alarm, cl_sched_now_ns(cl_sched_self())))
 *           timed_out(o);
 *       cl_spin_unlock(&o->lock);
 *   }
 *
 * After each callback the holder asks cl_alarm_due, then or later: without that the alarm is asleep. An alarm that was
 * cancelled or moved is called for nothing once, when its old time comes.
 *
 * Never early: cl_alarm_due says true at its deadline or after. Late by one lowest slot, and by what the kthread's loop
 * takes for a turn. Alarms of one slot come in no particular order. A kthread that is away (in a long handler, or
 * without a core) is stood in for by its siblings, as for its timers; the alarms stay where they are. An alarm that is
 * put anew goes to the wheel of the kthread that does it.
 *
 * Cost: arming later, cancelling: a store. Arming anew or sooner, removing: the wheel's lock, and O(1). A wheel without
 * alarms costs a turn of the loop nothing, and 2 KiB. */
#ifndef CORELANE_LIBOS_WHEEL_H
#define CORELANE_LIBOS_WHEEL_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_ALARM_SLOT_NS 16384 /* a lowest slot */
#define CL_ALARM_NONE UINT64_MAX

/* cl_alarm.state */
#define CL_ALARM_IDLE 0   /* in no wheel */
#define CL_ALARM_PLACED 1 /* in a slot */
#define CL_ALARM_CALLED 2 /* taken out of its slot for its callback; the holder has not asked since */

struct cl_alarm;
typedef void (*cl_alarm_fn)(struct cl_alarm *alarm);

/* All fields are the wheel's; cl_alarm_init makes one. */
struct cl_alarm {
    uint64_t deadline_ns; /* the holder's: what it wants; CL_ALARM_NONE: nothing */
    /* What the wheel goes by. While the alarm is placed the holder only makes it later (relaxed: a wheel that reads an
     * older value looks sooner), and the wheel reads it. */
    uint64_t look_ns;
    cl_alarm_fn fn;
    struct cl_alarm *next, **at; /* of the slot; under the lock of the wheel */
    void *home;                  /* the holder's: kthread whose wheel it is or was in; NULL: it never was in one */
    uint32_t state;              /* CL_ALARM_*; the wheel makes it CALLED (release), the holder all else */
    uint8_t level, slot;         /* where it is placed; under the lock of the wheel */
    uint16_t runner;             /* kthread that called it last + 1; written before it is CALLED */
};

CL_API void cl_alarm_init(struct cl_alarm *alarm, cl_alarm_fn fn);
/* The slow half of cl_alarm_arm. */
CL_API int cl_alarm_place(struct cl_alarm *alarm);
/* Whether the deadline has come; it is then over, and the alarm is not armed. now_ns: cl_sched_now_ns, or what the
 * caller read of it a moment ago. On a kthread. */
CL_API bool cl_alarm_due(struct cl_alarm *alarm, uint64_t now_ns);
/* Take the alarm out of its wheel for good, so that its memory is the caller's. Waits for a callback that is just
 * running elsewhere, but not for the one that it is called from. Whatever the callback takes must not be held, and it
 * must not arm the alarm any more. On a kthread, or between cl_sched_stop and cl_sched_delete. */
CL_API void cl_alarm_remove(struct cl_alarm *alarm);
// cffi: end

/* Want a callback at deadline_ns of the scheduler's clock, instead of what was wanted before. On a kthread; -EPERM on a
 * foreign thread. Does not block. */
static inline int cl_alarm_arm(struct cl_alarm *alarm, uint64_t deadline_ns)
{
    alarm->deadline_ns = deadline_ns;
    /* Relaxed: a wheel that just calls it makes the holder ask, who then sees the state and the deadline. */
    if (cl_likely(cl_load_relaxed(&alarm->state) == CL_ALARM_PLACED &&
                  deadline_ns >= cl_load_relaxed(&alarm->look_ns))) {
        cl_store_relaxed(&alarm->look_ns, deadline_ns);
        return 0;
    }
    return cl_alarm_place(alarm);
}

/* Want none. It may be called for nothing once. */
static inline void cl_alarm_cancel(struct cl_alarm *alarm)
{
    alarm->deadline_ns = CL_ALARM_NONE;
}

/* Whether cl_alarm_due would find nothing to do: it has not been called, and its deadline is later. The holder. */
static inline bool cl_alarm_quiet(const struct cl_alarm *alarm, uint64_t now_ns)
{
    /* Relaxed: of one that is called from now on the holder asks in its next turn. */
    return alarm->deadline_ns > now_ns && cl_load_relaxed(&alarm->state) != CL_ALARM_CALLED;
}

/* What is wanted, or CL_ALARM_NONE. */
static inline uint64_t cl_alarm_deadline_ns(const struct cl_alarm *alarm)
{
    return alarm->deadline_ns;
}

CL_EXTERN_C_END
#endif
