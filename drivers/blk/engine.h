/* What file.c and its two engines share (engine.c). Not a public header. */
#ifndef CORELANE_DRIVERS_BLK_ENGINE_H
#define CORELANE_DRIVERS_BLK_ENGINE_H

#include <corelane/drivers/blk_file.h>

#ifndef CL_BLK_CLOSE_MS
#define CL_BLK_CLOSE_MS 30000 /* how long closing waits for the next completion */
#endif

/* What the kernel refuses for want of memory goes once more after a pause, of 1, 2, 4... ms, 12 s in all. */
#define CL_BLK_REFUSED_MOST 200
#define CL_BLK_PAUSE_MOST_MS 64

/* Constant after opening, but for what says otherwise. */
struct cl_blk_file {
    struct cl_blk blk;
    int fd;
    uint64_t start; /* of the part that is ours */
    uint32_t
        no_dsync; /* writers: any queue's thread, once RWF_DSYNC was refused; readers: all, relaxed: it changes how, not
                   * what */
    int32_t
        not_durable; /* 0, or the answer of a flush or durable write that failed: all that is to be durable fails since.
                          * Writers: who saw it; readers: all, relaxed */
    struct cl_blk_file_info info;
    void *engine; /* the engine's own */
};

/* -errno of a flush or durable write, which has the flush in it, that failed before: after it nothing can be called
 * durable, since the kernel, or the disk's cache, forgets what it could not write. */
static inline int cl_blk_file_refuses(struct cl_blk_file *f, const struct cl_blk_req *r)
{
    return r->op == CL_BLK_FLUSH || r->flags & CL_BLK_DURABLE ? cl_load_relaxed(&f->not_durable) : 0;
}

/* Whether it is a failure, and not the refusal of something that never began. */
static inline bool cl_blk_file_failed(int result)
{
    return result && result != -EAGAIN && result != -EINTR;
}

/* Start the engine: fills blk.ops. -errno with a reason in err[256]. */
int cl_blk_uring_start(struct cl_blk_file *f, const struct cl_blk_file_config *config, char *err);
int cl_blk_threads_start(struct cl_blk_file *f, const struct cl_blk_file_config *config, char *err);
/* Closes the descriptor and frees f; by the engine's close. */
void cl_blk_file_delete(struct cl_blk_file *f);
/* Add to info.why what was refused. */
void cl_blk_file_remark(struct cl_blk_file *f, const char *what);
/* Format into err[256], which may be NULL; returns `error`. */
int cl_blk_file_refuse(char *err, int error, const char *format, ...) CL_PRINTF(3, 4);

#endif
