/* Recording what passes a NIC to a pcap file, and replaying a file as a NIC.
 *
 * Recorder: wraps a NIC and copies every frame received or taken for sending, with its stamp, into a byte ring of its
 * queue and direction; a thread of its own writes the file. So the polling thread pays one copy and no system call. A
 * full ring costs the recording frames (counted as `missed`), never the traffic. Frames appear in the file in the order
 * of their stamps, but for those that were being stamped while the writer swept the rings. Frames are stamped once a
 * burst, by the NIC's clock. By a virtual clock, where one thread steps everything, there is no writer's thread: frames
 * lie in the file in the order in which they passed, and its times are the clock's, so that equal runs leave equal
 * files.
 *
 * Replay: a NIC with one queue whose received frames come from a file, at the file's own distances, scaled, or as fast
 * as they are fetched; what is sent to it is counted and freed. Wrap it in a recorder to keep that.
 *
 * Files: the classic pcap format (draft-ietf-opsawg-pcap), nanosecond magic when writing; both resolutions and both
 * byte orders when reading. Link type 1, Ethernet.
 * Does not deal with: pcapng, the direction of a frame (pcap has no field for it; the MAC addresses say it),
 * compression. Tests: tests/drivers/nic/test_pcap.py, c/wrapped_stress.c, and the common suite. */
#ifndef CORELANE_DRIVERS_NIC_PCAP_H
#define CORELANE_DRIVERS_NIC_PCAP_H

#include <corelane/drivers/nic.h>

// cffi: begin
/* Zero means the default, given in brackets. */
struct cl_pcap_config {
    const char *path;
    uint32_t snap_bytes; /* of each frame, at most so many are kept [65535] */
    uint32_t ring_bytes; /* for each queue and direction; a power of two, 64 KiB .. 1 GiB [1 MiB] */
};

struct cl_pcap_counts {
    uint64_t recorded; /* frames in the file or on their way to it */
    uint64_t missed;   /* the ring was full */
    uint64_t written;  /* frames handed to the file */
    uint64_t file_bytes;
    uint64_t failed_errno; /* writing stopped with this error; 0: none */
};

/* Wrap `inner`, which then belongs to the wrapper. -errno with a reason in err[256]; inner is then untouched. */
CL_API int cl_pcap_nic_new(struct cl_nic *inner, const struct cl_pcap_config *config, struct cl_nic **out, char *err);
CL_API void cl_pcap_counts(struct cl_nic *nic, struct cl_pcap_counts *out);
/* Wait until everything recorded before the call is in the file. 0, or the writer's -errno. */
CL_API int cl_pcap_flush(struct cl_nic *nic);

struct cl_replay_config {
    const char *path;
    double speed;                 /* 1: as recorded, 2: twice as fast; 0: at once */
    uint64_t loops;               /* how often; 0: for ever */
    uint32_t buffers;             /* [2048] */
    uint8_t mac[6];               /* [destination of the first frame] */
    const struct cl_clock *clock; /* by which it replays [the machine's] */
};

struct cl_replay_counts {
    uint64_t in_file, delivered, loops_done;
    uint64_t too_long; /* frames of the file that no buffer holds: left out */
    uint64_t cut;      /* frames that the file holds in part only: left out */
};

/* A NIC that replays a file. It starts at the first rx_burst. -EPROTO: not a pcap file. */
CL_API int cl_replay_nic_new(const struct cl_replay_config *config, struct cl_nic **out, char *err);
/* Whether all loops are done. */
CL_API bool cl_replay_done(struct cl_nic *nic);
CL_API void cl_replay_counts(struct cl_nic *nic, struct cl_replay_counts *out);
// cffi: end

/* The file format, for both. */
#define CL_PCAP_MAGIC_US 0xa1b2c3d4u
#define CL_PCAP_MAGIC_NS 0xa1b23c4du
#define CL_PCAP_ETHERNET 1u

struct cl_pcap_file_header {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy;
    uint32_t snap_bytes;
    uint32_t link_type;
};

struct cl_pcap_record {
    uint32_t seconds, fraction;
    uint32_t kept_bytes, frame_bytes;
};
_Static_assert(sizeof(struct cl_pcap_file_header) == 24 && sizeof(struct cl_pcap_record) == 16, "as in the file");

#endif
