/* A state machine without a state, for tests of what is around it. */
#ifndef CORELANE_TESTS_APPS_RAFT_NO_STATE_H
#define CORELANE_TESTS_APPS_RAFT_NO_STATE_H

#include <stdint.h>

static inline int64_t apply_anything(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command,
                                     uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg, (void)index, (void)clock_ms, (void)command, (void)bytes, (void)reply, (void)room;
    return 0;
}

static inline int64_t save_nothing(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    (void)arg, (void)at, (void)out, (void)room;
    return 0;
}

static inline int load_anything(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg, (void)at, (void)data, (void)bytes, (void)total;
    return 0;
}

#endif
