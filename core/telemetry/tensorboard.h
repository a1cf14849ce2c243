/* TensorBoard event files: scalars, as records of protocol buffers with checksums, in a format that has not changed for years. A process
 * writes a file of its own; one that goes on where another ended says so, and TensorBoard then drops what the older file has of those
 * steps. Nothing that goes wrong here stops training: what cannot be written is dropped, counted. One thread. */
#ifndef ZF_TELEMETRY_TENSORBOARD_H
#define ZF_TELEMETRY_TENSORBOARD_H

#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

struct zf_tensorboard;

struct zf_scalar {
    const char *tag;
    float value;
};

/* Makes the folder and a new file there. first: the first step that will be written; above 1: of a run that goes on. */
enum zf_status zf_tensorboard_open(struct zf_tensorboard **out, const char *folder, uint64_t first, struct zf_err *e);
/* All of a step, at once. t may be NULL: nothing is written. */
void zf_tensorboard_write(struct zf_tensorboard *t, uint64_t step, const struct zf_scalar *scalars, size_t count);
size_t zf_tensorboard_dropped(const struct zf_tensorboard *t);
void zf_tensorboard_close(struct zf_tensorboard *t); /* NULL is fine */

/* The parts, pure: a whole record around an event, into out, which has room for ZF_EVENT_FRAME + the event; what is written. */
enum { ZF_EVENT_FRAME = 16 };
uint32_t zf_crc32c(const void *data, size_t size);
size_t zf_event_frame(unsigned char *out, const unsigned char *event, size_t size);
/* An event that holds scalars; at most zf_event_room bytes. */
size_t zf_event_room(const struct zf_scalar *scalars, size_t count);
size_t zf_event_scalars(unsigned char *out, double wall, uint64_t step, const struct zf_scalar *scalars, size_t count);
/* The event at the beginning of a file, and of one that goes on: 64 bytes are enough. */
size_t zf_event_version(unsigned char *out, double wall);
size_t zf_event_restart(unsigned char *out, double wall, uint64_t step);

#endif
