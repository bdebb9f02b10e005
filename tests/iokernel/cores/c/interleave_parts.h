/* What a state of the machine of interleave.h is made of, kept as numbers.
 *
 * A state is four parts: each thread's (registers, the stack in use, its private memory) and the shared one. Parts are
 * kept once, whatever number of states they occur in, compared byte by byte.
 *
 * Names. Numbers that are counted up and only compared (the grants of a kthread) would make the graph infinite. They
 * begin with an upper half that nothing else has, and are found in a part wherever they are; those that occur in a
 * state are counted anew from 1, in their order, which gives a state that differs from it by nothing that the code can
 * see. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_PARTS_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_PARTS_H

#include "interleave.h"
#include <sys/personality.h>
#include <unistd.h>

#define IL_NAMES 2
#define IL_PARTS (IL_THREADS + 1)
#define IL_SHARED IL_THREADS /* the last part */
#define IL_PART_BYTES (IL_STACK + 8192)

struct il_part {
    uint64_t hash, at; /* at: in `bytes` */
    uint64_t names[IL_NAMES];
    uint32_t length;
    uint8_t goals, exempt; /* bit g: as far as this part can tell the goal is there; it need not be reached from here */
    bool busy;             /* a thread in the middle of something */
};

static struct {
    struct il_part *list;
    uint32_t *table, n, mask;
    uint8_t *bytes;
    uint64_t n_bytes, room;
    uint16_t upper[IL_NAMES];
} ip;

/* The model's: goals that are there as far as the memory of a part tells (IL_SHARED: the shared words), and for the
 * shared one those that need not be reached. */
static uint8_t il_goals(unsigned part, uint8_t *exempt);

static void *il_grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "out of memory for the graph of states\n");
        exit(1);
    }
    return p;
}

static uint64_t il_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

static uint64_t il_hash(const void *at, size_t bytes) /* a multiple of 4 */
{
    const uint8_t *b = at;
    uint64_t h = bytes, words;
    uint32_t last;
    for (; bytes >= sizeof words; b += sizeof words, bytes -= sizeof words) {
        memcpy(&words, b, sizeof words);
        h = il_mix(h, words);
    }
    if (bytes) {
        memcpy(&last, b, sizeof last);
        h = il_mix(h, last);
    }
    return h ^ h >> 32;
}

/* Start this program again at addresses that are the same each time, of which none looks like a name. Where the system
 * does not let it, it goes on as it is. */
static void ip_fix_addresses(char **argv)
{
    int before = personality(0xffffffff);
    if (before < 0 || before & ADDR_NO_RANDOMIZE || personality((unsigned long)before | ADDR_NO_RANDOMIZE) < 0 ||
        !(personality(0xffffffff) & ADDR_NO_RANDOMIZE))
        return;
    execv("/proc/self/exe", argv);
}

/* Upper halves that occur in no address of this program, wherever the loader has put it. */
static void ip_choose_names(void)
{
    extern char __executable_start[], _end[];
    uint32_t from = (uint32_t)((uintptr_t)__executable_start >> 16) & 0xffff;
    uint32_t n = (uint32_t)(((uintptr_t)_end - (uintptr_t)__executable_start) >> 16) + 2;
    uint16_t at = 0x5a00;
    for (unsigned i = 0; i < IL_NAMES; at++)
        if ((uint16_t)(at - from) > n)
            ip.upper[i++] = at;
}

static uint64_t ip_find_name(uint32_t word, unsigned *which)
{
    for (unsigned i = 0; i < IL_NAMES; i++)
        if (word >> 16 == ip.upper[i]) {
            *which = i;
            if ((word & 0xffff) == 0 || (word & 0xffff) > 63) {
                fprintf(stderr, "more than 63 names at a time\n");
                exit(1);
            }
            return 1ull << (word & 0xffff);
        }
    return 0;
}

static void ip_grow_table(void)
{
    ip.mask = ip.mask ? 2 * ip.mask + 1 : 0xffff;
    ip.list = il_grow(ip.list, (size_t)(ip.mask + 1) / 2 * sizeof *ip.list);
    ip.table = il_grow(ip.table, ((size_t)ip.mask + 1) * sizeof *ip.table);
    memset(ip.table, 0, ((size_t)ip.mask + 1) * sizeof *ip.table);
    for (uint32_t i = 0; i < ip.n; i++) {
        uint32_t slot = (uint32_t)ip.list[i].hash & ip.mask;
        while (ip.table[slot])
            slot = (slot + 1) & ip.mask;
        ip.table[slot] = i + 1;
    }
}

/* The number of a part with these contents. A new one is as `like` says. */
static uint32_t ip_intern(const uint8_t *from, uint32_t length, const struct il_part *like)
{
    uint64_t hash = il_hash(from, length);
    if (ip.n >= ip.mask / 2)
        ip_grow_table();
    uint32_t slot = (uint32_t)hash & ip.mask;
    for (; ip.table[slot]; slot = (slot + 1) & ip.mask) {
        const struct il_part *p = &ip.list[ip.table[slot] - 1];
        if (p->hash == hash && p->length == length && memcmp(ip.bytes + p->at, from, length) == 0)
            return ip.table[slot] - 1;
    }
    if (ip.n_bytes + length > ip.room) {
        ip.room = 2 * ip.room + (1 << 20);
        ip.bytes = il_grow(ip.bytes, ip.room);
    }
    struct il_part *p = &ip.list[ip.n];
    *p = (struct il_part){.hash = hash,
                          .at = ip.n_bytes,
                          .length = length,
                          .goals = like->goals,
                          .exempt = like->exempt,
                          .busy = like->busy};
    memcpy(ip.bytes + ip.n_bytes, from, length);
    ip.n_bytes += length;
    for (uint32_t i = 0; i < length; i += 4) {
        unsigned which = 0;
        uint64_t bit = ip_find_name(*(const uint32_t *)(from + i), &which);
        p->names[which] |= bit;
    }
    ip.table[slot] = ++ip.n;
    return ip.n - 1;
}

static uint8_t ip_buffer[IL_PART_BYTES] CL_ALIGNED(8);

static void ip_put(uint32_t *n, const void *from, size_t bytes)
{
    memcpy(ip_buffer + *n, from, bytes);
    memset(ip_buffer + *n + bytes, 0, (8 - bytes % 8) % 8);
    *n += (uint32_t)(bytes + 7) & ~7u;
}

static void ip_get(const uint8_t **from, void *to, size_t bytes)
{
    memcpy(to, *from, bytes);
    *from += (bytes + 7) & ~7ull;
}

static bool il_gone(unsigned t)
{
    return il.m.dead[t] || il.m.frozen[t];
}

static uint32_t ip_capture_thread(unsigned t)
{
    uint32_t n = 0;
    struct il_part like = {0};
    char *sp = il.thread[t].context.sp, *top = il_stacks[t] + IL_STACK;
    like.goals = il_goals(t, &like.exempt);
    like.busy = !il_gone(t) && il.thread[t].need < IL_CHOICE;
    if (il_gone(t)) { /* it never goes on: nobody sees what it has */
        ip_put(&n, &(uint64_t){t}, sizeof(uint64_t));
        return ip_intern(ip_buffer, n, &like);
    }
    ip_put(&n, &il.thread[t], sizeof il.thread[t]);
    ip_put(&n, sp, (size_t)(top - sp));
    for (unsigned i = 0; i < il.n_regions[t]; i++)
        ip_put(&n, il.regions[t][i].at, il.regions[t][i].bytes);
    return ip_intern(ip_buffer, n, &like);
}

/* The stack below is cleared, so that what was left there by calls long ago does not tell states apart. */
static void ip_load_thread(unsigned t, uint32_t part)
{
    const uint8_t *from = ip.bytes + ip.list[part].at;
    if (il_gone(t))
        return;
    ip_get(&from, &il.thread[t], sizeof il.thread[t]);
    char *sp = il.thread[t].context.sp, *top = il_stacks[t] + IL_STACK;
    memset(sp - 4096, 0, 4096);
    ip_get(&from, sp, (size_t)(top - sp));
    for (unsigned i = 0; i < il.n_regions[t]; i++)
        ip_get(&from, il.regions[t][i].at, il.regions[t][i].bytes);
}

static uint32_t ip_capture_shared(void)
{
    uint32_t n = 0;
    struct il_part like = {0};
    like.goals = il_goals(IL_SHARED, &like.exempt);
    ip_put(&n, &il.m, sizeof il.m);
    for (unsigned w = 0; w < il.n_words; w++)
        ip_put(&n, il.words[w].at, il.words[w].bytes);
    return ip_intern(ip_buffer, n, &like);
}

static void ip_load_shared(uint32_t part)
{
    const uint8_t *from = ip.bytes + ip.list[part].at;
    ip_get(&from, &il.m, sizeof il.m);
    for (unsigned w = 0; w < il.n_words; w++)
        ip_get(&from, il.words[w].at, il.words[w].bytes);
}

/* What became of parts lately: few are renamed, most of them again and again. */
static struct {
    uint64_t all[IL_NAMES];
    uint32_t part, to; /* part: plus 1 */
} ip_renamed[1 << 15];

static uint32_t ip_rename(uint32_t part, uint64_t all[IL_NAMES])
{
    uint64_t hash = il_mix(part, il_hash(all, IL_NAMES * sizeof *all));
    unsigned at = (unsigned)(hash >> 32) % (sizeof ip_renamed / sizeof *ip_renamed);
    if (ip_renamed[at].part == part + 1 && memcmp(ip_renamed[at].all, all, IL_NAMES * sizeof *all) == 0)
        return ip_renamed[at].to;
    static uint8_t copy[IL_PART_BYTES] CL_ALIGNED(8);
    uint32_t length = ip.list[part].length;
    memcpy(copy, ip.bytes + ip.list[part].at, length);
    for (uint32_t i = 0; i < length; i += 4) {
        uint32_t *word = (uint32_t *)(copy + i);
        unsigned which = 0;
        uint64_t bit = ip_find_name(*word, &which);
        if (bit)
            *word = (uint32_t)ip.upper[which] << 16 | (uint32_t)(1 + __builtin_popcountll(all[which] & (bit - 1)));
    }
    struct il_part like = ip.list[part];
    memcpy(ip_renamed[at].all, all, IL_NAMES * sizeof *all);
    ip_renamed[at].part = part + 1;
    return ip_renamed[at].to = ip_intern(copy, length, &like);
}

/* The same state by its first names. */
static void ip_canonical(uint32_t part[IL_PARTS])
{
    uint64_t all[IL_NAMES] = {0};
    bool dense = true;
    for (unsigned i = 0; i < IL_NAMES; i++) {
        for (unsigned p = 0; p < IL_PARTS; p++)
            all[i] |= ip.list[part[p]].names[i];
        uint64_t without = all[i] >> 1; /* bit 0 is never set */
        dense &= (without & (without + 1)) == 0;
    }
    for (unsigned p = 0; !dense && p < IL_PARTS; p++)
        part[p] = ip_rename(part[p], all);
}

#endif
