/* bpf(2) by system call: maps, programs, links, test runs. No libbpf.
 *
 * Each function is one system call (the get/next helpers included), returns a descriptor or 0, or -errno. Descriptors
 * are close-on-exec; closing the descriptor of a link detaches its program, which is why nothing here pins anything.
 * Reference: the attribute union of include/uapi/linux/bpf.h; the kernel's Documentation/bpf. */
#ifndef CORELANE_DRIVERS_BPF_SYS_H
#define CORELANE_DRIVERS_BPF_SYS_H

#include <corelane/runtime/base.h>

// cffi: begin
/* A new map. `name` may be empty. */
CL_API int cl_bpf_map_create(uint32_t type, uint32_t key_bytes, uint32_t value_bytes, uint32_t max_entries,
                             uint32_t flags, const char *name);
CL_API int cl_bpf_map_update(int map_fd, const void *key, const void *value, uint64_t flags);
CL_API int cl_bpf_map_lookup(int map_fd, const void *key, void *value);
CL_API int cl_bpf_map_delete(int map_fd, const void *key);
/* The key after `key` (NULL: the first) into `next`; -ENOENT after the last. */
CL_API int cl_bpf_map_next_key(int map_fd, const void *key, void *next);
/* No user may write the map through bpf(2) any more; what .rodata is. */
CL_API int cl_bpf_map_freeze(int map_fd);
/* Load `n_insns` 8-byte instructions of an XDP program. `log` (may be NULL with log_bytes 0) receives the verifier's
 * words, always terminated; -ENOSPC if they did not fit. */
CL_API int cl_bpf_prog_load_xdp(const void *insns, uint32_t n_insns, const char *license, const char *name, char *log,
                                uint32_t log_bytes);
/* Attach to a network device of the calling thread's namespace. flags: XDP_FLAGS_SKB_MODE, _DRV_MODE, _HW_MODE or 0. */
CL_API int cl_bpf_link_xdp(int prog_fd, uint32_t ifindex, uint32_t flags);
/* Run an XDP program on `frame` `repeat` times in the kernel; its verdict into *verdict, the frame as it left it into
 * `out` (room *out_bytes, length back in *out_bytes), mean time of a run into *duration_ns. */
CL_API int cl_bpf_prog_test_run(int prog_fd, const void *frame, uint32_t frame_bytes, uint32_t repeat, void *out,
                                uint32_t *out_bytes, uint32_t *verdict, uint32_t *duration_ns);
/* CPUs that per-CPU map values have room for (the kernel's num_possible_cpus), or -errno. */
CL_API int cl_bpf_possible_cpus(void);
/* Id of the XDP program attached to a device of the calling thread's namespace, 0 if none, or -errno. */
CL_API int64_t cl_bpf_xdp_attached(uint32_t ifindex);
/* Id of the program behind a descriptor, or -errno. */
CL_API int64_t cl_bpf_prog_id(int prog_fd);
// cffi: end

#endif
