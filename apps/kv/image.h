/* A store as a run of bytes, and back: for replicas that must have the same items, cas numbers and all.
 *
 * The image is of the store's memory as it is, so it fits only a store made with the same sizes, partitions and seed.
 * Nobody else may use the store meanwhile. */
#ifndef CORELANE_APPS_KV_IMAGE_H
#define CORELANE_APPS_KV_IMAGE_H

#include "store.h"

// cffi: begin
#define CL_KV_IMAGE_HEADER 128 /* bytes at its beginning that the first piece must have */

/* Bytes of the image. -EINVAL: the store has more than one partition. */
CL_API int64_t cl_kv_image_bytes(const struct cl_kv *store);
/* What no image of this store is longer than, whatever it will hold. -EINVAL: more than one partition. */
CL_API int64_t cl_kv_image_most(const struct cl_kv *store);
/* Copy up to `room` bytes of the image from byte `at` on; 0 at its end. */
CL_API int64_t cl_kv_image_save(const struct cl_kv *store, uint64_t at, uint8_t *out, uint64_t room);
/* Copy items as memcached's set commands (ms with a key in base64 where the key is no word), as many as have room, from
 * place *at on, 0 to begin with; *at is where to go on. Items that are gone at now_s, on the store's clock, are left
 * out; times of expiry are Unix time, of which the store's second 0 is unix_base_s. Returns the bytes; 0: all are done.
 * `room` has to do for the largest item and a line. -EINVAL: more than one partition. */
CL_API int64_t cl_kv_export(const struct cl_kv *store, uint64_t *at, uint32_t now_s, int64_t unix_base_s, uint8_t *out,
                            uint64_t room);
/* A number that is the same for stores that did the same writes at the same times, however they came to it: the items,
 * where they lie, and all that later writes depend on. What was read does not count. -EINVAL: more than one
 * partition. */
CL_API int cl_kv_digest(const struct cl_kv *store, uint64_t *out);
/* Become what was saved: consecutive pieces, the first at 0. -EINVAL: not an image of a store like this one. */
CL_API int cl_kv_image_load(struct cl_kv *store, uint64_t at, const uint8_t *data, uint64_t bytes);
// cffi: end

#endif
