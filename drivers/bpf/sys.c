/* See sys.h. */
#include "sys.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long bpf(int command, union bpf_attr *attr)
{
    long r = syscall(SYS_bpf, command, attr, sizeof *attr);
    return r < 0 ? -errno : r;
}

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* Kernel object names: at most 15 of [A-Za-z0-9_.], else the call fails. */
static void object_name(char out[BPF_OBJ_NAME_LEN], const char *name)
{
    unsigned n = 0;
    for (; name && name[n] && n < BPF_OBJ_NAME_LEN - 1; n++) {
        char c = name[n];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
        out[n] = fine ? c : '_';
    }
    out[n] = 0;
}

int cl_bpf_map_create(uint32_t type, uint32_t key_bytes, uint32_t value_bytes, uint32_t max_entries, uint32_t flags,
                      const char *name)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = type;
    attr.key_size = key_bytes;
    attr.value_size = value_bytes;
    attr.max_entries = max_entries;
    attr.map_flags = flags;
    object_name(attr.map_name, name);
    return (int)bpf(BPF_MAP_CREATE, &attr);
}

int cl_bpf_map_update(int map_fd, const void *key, const void *value, uint64_t flags)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = address(key);
    attr.value = address(value);
    attr.flags = flags;
    return (int)bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

int cl_bpf_map_lookup(int map_fd, const void *key, void *value)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = address(key);
    attr.value = address(value);
    return (int)bpf(BPF_MAP_LOOKUP_ELEM, &attr);
}

int cl_bpf_map_delete(int map_fd, const void *key)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = address(key);
    return (int)bpf(BPF_MAP_DELETE_ELEM, &attr);
}

int cl_bpf_map_next_key(int map_fd, const void *key, void *next)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = address(key);
    attr.next_key = address(next);
    return (int)bpf(BPF_MAP_GET_NEXT_KEY, &attr);
}

int cl_bpf_map_freeze(int map_fd)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    return (int)bpf(BPF_MAP_FREEZE, &attr);
}

int cl_bpf_prog_load_xdp(const void *insns, uint32_t n_insns, const char *license, const char *name, char *log,
                         uint32_t log_bytes)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_XDP;
    attr.expected_attach_type = BPF_XDP;
    attr.insns = address(insns);
    attr.insn_cnt = n_insns;
    attr.license = address(license);
    object_name(attr.prog_name, name);
    if (log && log_bytes >= 128) { /* the kernel's smallest log */
        log[0] = 0;
        attr.log_level = 1;
        attr.log_buf = address(log);
        attr.log_size = log_bytes;
    }
    return (int)bpf(BPF_PROG_LOAD, &attr);
}

int cl_bpf_link_xdp(int prog_fd, uint32_t ifindex, uint32_t flags)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.link_create.prog_fd = (uint32_t)prog_fd;
    attr.link_create.target_ifindex = ifindex;
    attr.link_create.attach_type = BPF_XDP;
    attr.link_create.flags = flags;
    return (int)bpf(BPF_LINK_CREATE, &attr);
}

int cl_bpf_prog_test_run(int prog_fd, const void *frame, uint32_t frame_bytes, uint32_t repeat, void *out,
                         uint32_t *out_bytes, uint32_t *verdict, uint32_t *duration_ns)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.test.prog_fd = (uint32_t)prog_fd;
    attr.test.data_in = address(frame);
    attr.test.data_size_in = frame_bytes;
    attr.test.data_out = address(out);
    attr.test.data_size_out = out_bytes ? *out_bytes : 0;
    attr.test.repeat = repeat;
    int r = (int)bpf(BPF_PROG_TEST_RUN, &attr);
    if (r < 0)
        return r;
    if (out_bytes)
        *out_bytes = attr.test.data_size_out;
    *verdict = attr.test.retval;
    *duration_ns = attr.test.duration;
    return 0;
}

int cl_bpf_possible_cpus(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/possible", "re");
    if (!f)
        return -errno;
    /* "0-63" or "0,2-5": the kernel sizes per-CPU values by the number of ids in the list. */
    int count = 0;
    unsigned first, last;
    while (fscanf(f, "%u", &first) == 1) {
        int c = fgetc(f);
        last = first;
        if (c == '-') {
            if (fscanf(f, "%u", &last) != 1)
                break;
            c = fgetc(f);
        }
        count += (int)(last - first + 1);
        if (c != ',')
            break;
    }
    fclose(f);
    return count > 0 ? count : -EIO;
}

/* The IFLA_XDP attribute of an RTM_NEWLINK message: the nested IFLA_XDP_PROG_ID, or 0. */
static int64_t prog_id_in(const struct nlmsghdr *h, size_t bytes)
{
    size_t room = bytes < h->nlmsg_len ? bytes : h->nlmsg_len;
    if (room < NLMSG_SPACE(sizeof(struct ifinfomsg)))
        return 0;
    int left = (int)(room - NLMSG_SPACE(sizeof(struct ifinfomsg)));
    const struct rtattr *a = (const void *)((const char *)NLMSG_DATA(h) + NLMSG_ALIGN(sizeof(struct ifinfomsg)));
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if ((a->rta_type & NLA_TYPE_MASK) != IFLA_XDP)
            continue;
        int inner = (int)RTA_PAYLOAD(a);
        const struct rtattr *b = RTA_DATA(a);
        for (; RTA_OK(b, inner); b = RTA_NEXT(b, inner))
            if ((b->rta_type & NLA_TYPE_MASK) == IFLA_XDP_PROG_ID && RTA_PAYLOAD(b) >= sizeof(uint32_t)) {
                uint32_t id;
                memcpy(&id, RTA_DATA(b), sizeof id);
                return id;
            }
    }
    return 0;
}

int64_t cl_bpf_xdp_attached(uint32_t ifindex)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST, 1, 0},
                 {.ifi_family = AF_UNSPEC, .ifi_index = (int)ifindex}};
    char reply[16384] CL_ALIGNED(8);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    ssize_t n = send(fd, &request, sizeof request, 0);
    if (n >= 0)
        n = recv(fd, reply, sizeof reply, 0);
    int err = errno;
    close(fd);
    if (n < 0)
        return -err;
    const struct nlmsghdr *h = (const void *)reply;
    if ((size_t)n < sizeof *h)
        return -EIO;
    if (h->nlmsg_type == NLMSG_ERROR)
        return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
    return prog_id_in(h, (size_t)n);
}

int64_t cl_bpf_prog_id(int prog_fd)
{
    struct bpf_prog_info info;
    memset(&info, 0, sizeof info);
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.info.bpf_fd = (uint32_t)prog_fd;
    attr.info.info_len = sizeof info;
    attr.info.info = address(&info);
    long r = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
    return r < 0 ? r : (int64_t)info.id;
}
